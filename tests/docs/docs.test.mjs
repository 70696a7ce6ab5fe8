// The documentation holds: links lead somewhere, commands run, lists of names are those of the code.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join, relative, resolve } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const read = (path) => readFileSync(join(ROOT, path), 'utf8');
const pages = (folder) => readdirSync(join(ROOT, folder)).filter((name) => name.endsWith('.md'));
const DOCS = ['README.md', 'web/README.md', ...['docs', 'docs/zh'].flatMap((folder) => pages(folder).map((name) => `${folder}/${name}`))];

const withoutCode = (text) => text.replace(/^(```|~~~)[\s\S]*?^\1/gm, '').replace(/^ {4}.*$/gm, '').replace(/`[^`\n]*`/g, '');
// As GitHub makes them.
const slug = (heading) => heading.toLowerCase().replace(/[^\p{L}\p{N} _-]/gu, '').trim().replaceAll(' ', '-');
const anchors = (text) => new Set([...text.replace(/^(```|~~~)[\s\S]*?^\1/gm, '').matchAll(/^#{1,6} (.*)$/gm)].map((match) => slug(match[1].replace(/`/g, ''))));

test('every link within the project leads to a file, and every anchor to a heading', () => {
  let links = 0;
  for (const path of DOCS) {
    for (const [, target] of withoutCode(read(path)).matchAll(/\]\(([^)\s]+)\)/g)) {
      if (/^(https?|mailto):/.test(target)) continue;
      const [file, anchor] = target.split('#');
      const to = file === '' ? join(ROOT, path) : resolve(ROOT, dirname(path), file);
      assert.ok(existsSync(to), `${path}: ${target}`);
      if (anchor && to.endsWith('.md')) assert.ok(anchors(readFileSync(to, 'utf8')).has(anchor), `${path}: ${target}`);
      ++links;
    }
  }
  assert.ok(links > 50, `${links} links`);
});

test('paths that texts name as code exist', () => {
  const rooms = /^(core|probe|web|wasm|tests|docs|scripts)\//;
  for (const path of DOCS) {
    for (const [, code] of read(path).matchAll(/`([^`\n]+)`/g)) {
      if (!rooms.test(code) || /[*{}<>\s$]|\.\.\./.test(code)) continue;
      const to = code.replace(/:\d+$/, '').replace(/\/$/, '');
      assert.ok(existsSync(join(ROOT, to)), `${path}: ${code}`);
    }
  }
});

// What the documents' example files stand for.
const CONFIG = read('tests/fixtures/configs/llama-3.2-1b.json');
const RECIPE = JSON.stringify({ method: 'lora', checkpointing: 'full', seq: 1024 });
const LOG = 'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\n    loss.backward()\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.96 GiB. GPU 0 has a total capacity of 23.64 GiB of which 1.20 GiB is free.\n';
const STATUS = { '--check': [0, 4] }; // a machine's own matter; everything else must end well

let folder;
before(() => {
  folder = mkdtempSync(join(tmpdir(), 'docs-'));
  for (const name of ['build', 'docs', 'web', 'probe']) symlinkSync(join(ROOT, name), join(folder, name));
  writeFileSync(join(folder, 'config.json'), CONFIG);
  writeFileSync(join(folder, 'recipe.json'), RECIPE);
  writeFileSync(join(folder, 'log.txt'), LOG);
});
after(() => rmSync(folder, { recursive: true, force: true }));

// Lines of code blocks that call the program; comments behind them are prose.
function commands(path) {
  const blocks = [...read(path).matchAll(/^(?: {4}|\$ )?(build\/bin\/probe .*)$/gm)].map((match) => match[1]);
  return blocks.map((line) => line.replace(/\s{2,}#.*$/, '').trim());
}

for (const path of DOCS.filter((name) => commands(name).length > 0)) {
  test(`commands of ${path} run as they stand`, { timeout: 240_000 }, () => {
    for (const command of commands(path)) {
      const { status, stderr } = spawnSync('bash', ['-c', command], { cwd: folder, encoding: 'utf8', timeout: 120_000 });
      const allowed = Object.entries(STATUS).find(([flag]) => command.includes(flag))?.[1] ?? [0];
      assert.ok(allowed.includes(status), `${command}\nends with ${status}: ${stderr.slice(0, 400)}`);
    }
  });
}

test('scripts that documents call exist and take the flags they name', () => {
  for (const path of DOCS) {
    for (const [, script, rest] of read(path).matchAll(/^ {4}(scripts\/\w+)(.*)$/gm)) {
      assert.ok(existsSync(join(ROOT, script)), `${path}: ${script}`);
      const source = read(script);
      for (const [flag] of rest.replace(/#.*$/, '').matchAll(/--[a-z-]+/g)) assert.ok(source.includes(flag), `${path}: ${script} ${flag}`);
    }
  }
});

test('the recipe keys of recipes.md, of the schema and of the embeds are those of the core', () => {
  const { stdout } = spawnSync(join(ROOT, 'build/bin/predict_cli'), { input: 'catalogue\n', encoding: 'utf8' });
  const keys = JSON.parse(stdout).recipe_keys.map((key) => key.name);
  assert.ok(keys.length > 40);
  const cells = [...read('docs/recipes.md').matchAll(/^\| ([^|]*) \|/gm)].flatMap((row) => row[1].match(/`(\w+)`/g) ?? []);
  for (const key of keys) assert.ok(cells.includes(`\`${key}\``), `${key} has no row in recipes.md`);
  assert.deepEqual([...keys].sort(), Object.keys(JSON.parse(read('docs/schema/recipe.schema.json')).properties).sort());
});

test('problem codes and embedding attributes of the documents are those of the code', () => {
  const codes = [...read('core/base/problem.h').matchAll(/^ {2}(\w+),\s+\/\//gm)].map((match) => match[1]);
  for (const code of codes) assert.match(read('docs/problems.md'), new RegExp(`\`${code}\``), code);
  const views = /VIEWS = \[([^\]]*)\]/.exec(read('web/src/embed/attributes.ts'))[1].match(/\w+/g);
  const own = /OWN: ReadonlySet<string> = new Set\(\[([^\]]*)\]/.exec(read('web/src/embed/attributes.ts'))[1].match(/\w+/g);
  const rows = read('docs/embedding.md');
  for (const view of views) assert.match(rows, new RegExp(`\\| \`view\` \\|.*\`${view}\``), view);
  for (const attribute of own) assert.match(rows, new RegExp(`^\\| \`${attribute}\` \\|`, 'm'), attribute);
});

test('what README says of accuracy is what the report says', () => {
  const report = read('docs/accuracy.md');
  const [, phases, equal, median, largest] = /runs, (\d+) phases: (\d+) equal to the byte, median difference ([\d.]+)%, largest ([\d.]+)%/.exec(report);
  assert.ok(Number(phases) > 1000 && Number(equal) / Number(phases) > 0.9, `${equal} of ${phases}`);
  assert.ok(Number(median) === 0 && Number(largest) < 0.05, `${median} ${largest}`);
  const published = /Grade B: (\d+) rows, median ([\d.]+)%, .*lowest -([\d.]+)%, highest \+([\d.]+)%/.exec(report);
  assert.equal(/Grade A: .*the bar is missed/.test(report), /grade A[^|]*misses its bar/.test(read('README.md')));
  assert.ok(Number(published[2]) <= 1 && Math.max(Number(published[3]), Number(published[4])) < 25, published[0]);
});

test('version numbers agree', () => {
  const version = /VERSION (\d+\.\d+\.\d+)/.exec(read('CMakeLists.txt'))[1];
  assert.equal(JSON.parse(read('web/package.json')).version, version);
  assert.match(read('CITATION.cff'), new RegExp(`^version: ${version.replaceAll('.', '\\.')}$`, 'm'));
});

test('the workflow, the issue template and the citation are YAML, and call what exists', () => {
  const { parse } = createRequire(join(ROOT, 'web/package.json'))('yaml');
  const steps = parse(read('.github/workflows/pages.yml')).jobs.publish.steps;
  const script = steps.map((step) => step.run ?? '').find((run) => run.startsWith('scripts/'));
  assert.ok(existsSync(join(ROOT, script.split(' ')[0])));
  assert.equal(steps.find((step) => /upload-pages-artifact/.test(step.uses ?? '')).with.path, 'dist/site');
  const fields = parse(read('.github/ISSUE_TEMPLATE/measurement.yml')).body;
  assert.ok(fields.some((field) => field.id === 'measured' && field.attributes.render === 'json' && field.validations.required));
  assert.equal(parse(read('CITATION.cff'))['cff-version'], '1.2.0');
});
