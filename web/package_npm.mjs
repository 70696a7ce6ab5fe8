// package_npm.mjs - the built site as an npm package: node web/package_npm.mjs --site DIR --out DIR
//
// Plain files, no scripts that run at installation, no dependencies.

import { copyFile, cp, mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';

const here = new URL('.', import.meta.url).pathname;
const { values: flags } = parseArgs({ options: { site: { type: 'string' }, out: { type: 'string' } } });
const site = resolve(flags.site ?? join(here, '../build/site'));
const out = resolve(flags.out ?? join(here, '../build/npm'));

// The pages in one file are for disks; measurements and the offline worker belong to a site.
const LEFT_OUT = /^(memory-ledger(-course)?\.html|measured|sw\.js|_headers|\.nojekyll)$/;

await rm(out, { recursive: true, force: true });
await mkdir(out, { recursive: true });
for (const name of await readdir(site)) {
  if (!LEFT_OUT.test(name)) await cp(join(site, name), join(out, name), { recursive: true });
}
const { version } = JSON.parse(await readFile(join(here, 'package.json'), 'utf8'));
const manifest = (await readFile(join(here, 'npm/package.json'), 'utf8')).replace('@version@', version);
await writeFile(join(out, 'package.json'), manifest);
for (const name of ['index.d.ts', 'README.md']) await copyFile(join(here, 'npm', name), join(out, name));
await copyFile(join(here, '../LICENSE'), join(out, 'LICENSE'));
await writeDocument('embedding.md', 'embedding.md', { 'zh/embedding.md': 'embedding.zh.md' });
await writeDocument('zh/embedding.md', 'embedding.zh.md', { '../embedding.md': 'embedding.md' });

// Links between the documents that are in the package stay links; what is not in it is named.
async function writeDocument(source, name, inside) {
  const text = await readFile(join(here, '../docs', source), 'utf8');
  await writeFile(join(out, name), text.replace(/\[([^\]]+)\]\((?!https?:|#)([^)]+)\)/g, (link, words, target) => (inside[target] ? `[${words}](${inside[target]})` : words)));
}
