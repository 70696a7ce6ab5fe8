// Embeds in sites that two common generators build: MkDocs (Debian's) and Eleventy (npm's), below a sub-path, in Chromium.

import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { createSite, listen } from '../../web/serve.mjs';
import { launch, openPage, SITE } from '../browser/support.mjs';

const ELEVENTY = fileURLToPath(new URL('eleventy', import.meta.url));
let browser;
let folder;
before(async () => {
  browser = await launch();
  folder = mkdtempSync(join(tmpdir(), 'generators-'));
});
after(async () => {
  await browser?.close();
  rmSync(folder, { recursive: true, force: true });
});

// What docs/embedding.md tells authors to write; the page lies one folder below the site's root.
const LESSON = `# Memory of a run

Prose before.

<script type="module" src="../ledger/embed.js"></script>
<memory-ledger model="llama-3-8b" method="lora" view="verdict bar" controls="batch seq"></memory-ledger>

Prose between, with *emphasis*.

<iframe data-memory-ledger src="../ledger/embed/#model=llama-3-8b&method=qlora&view=verdict" title="QLoRA" width="100%" height="300"></iframe>
<script src="../ledger/host.js" defer></script>
`;

async function openLesson(built) {
  const server = createSite(built, '/some/course/');
  const port = await listen(server, 0, '127.0.0.1');
  const { page, context, faults } = await openPage(browser, `http://127.0.0.1:${port}/some/course/lesson/`);
  try {
    await page.locator('memory-ledger ml-verdict').waitFor();
    assert.equal(await page.evaluate(() => document.querySelector('memory-ledger').report.recipe.method), 'lora');
    await page.locator('memory-ledger').getByLabel('Batch').fill('3');
    await page.waitForFunction(() => document.querySelector('memory-ledger').report.recipe.batch === 3);
    const frame = page.frameLocator('iframe[data-memory-ledger]');
    await page.locator('iframe[data-memory-ledger]').scrollIntoViewIfNeeded();
    await frame.locator('ml-verdict').waitFor();
    await page.waitForFunction(() => {
      const frame = document.querySelector('iframe[data-memory-ledger]');
      return Math.abs(frame.clientHeight - frame.contentDocument.documentElement.getBoundingClientRect().height) < 4;
    });
    const size = await page.locator('ml-verdict .why').first().evaluate((element) => getComputedStyle(element).fontSize);
    assert.equal(size, '16px', 'whatever the theme’s font size is');
    assert.deepEqual(faults.filter((fault) => /ledger|policy/.test(fault)), []); // a theme’s own files are its own matter
  } finally {
    await context.close();
    server.closeAllConnections();
    await new Promise((done) => server.close(done));
  }
}

test('MkDocs', { skip: spawnSync('mkdocs', ['--version']).status !== 0 && 'mkdocs is not installed' }, async () => {
  const root = join(folder, 'mkdocs');
  mkdirSync(join(root, 'docs'), { recursive: true });
  writeFileSync(join(root, 'mkdocs.yml'), 'site_name: A course\ntheme: mkdocs\n');
  writeFileSync(join(root, 'docs/index.md'), '# Course\n');
  writeFileSync(join(root, 'docs/lesson.md'), LESSON);
  cpSync(SITE, join(root, 'docs/ledger'), { recursive: true });
  execFileSync('mkdocs', ['build', '--quiet'], { cwd: root });
  await openLesson(join(root, 'site'));
});

test('Eleventy', async () => {
  const root = join(folder, 'eleventy');
  mkdirSync(root, { recursive: true });
  writeFileSync(join(root, 'package.json'), '{"type": "module"}\n');
  writeFileSync(join(root, 'eleventy.config.js'), `export default (config) => {\n  config.addPassthroughCopy({ ${JSON.stringify(SITE)}: 'ledger' });\n};\n`);
  writeFileSync(join(root, 'lesson.md'), LESSON);
  execFileSync('node', [join(ELEVENTY, 'node_modules/@11ty/eleventy/cmd.cjs'), '--quiet'], { cwd: root });
  await openLesson(join(root, '_site'));
});
