// The site as it is released: the same bytes twice, archives that can be checked, a package that installs by itself.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { loadParts } from '../wasm/parts.mjs';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const run = (command, parameters, options = {}) => execFileSync(command, parameters, { cwd: ROOT, encoding: 'utf8', ...options });
let folder;
const at = (...names) => join(folder, ...names);

before(() => {
  folder = mkdtempSync(join(tmpdir(), 'site-'));
  run('scripts/site', ['--out', at('a/site'), '--archive', '--npm', at('npm')]);
  run('scripts/site', ['--out', at('elsewhere/and/deeper/site'), '--archive']);
});
after(() => rmSync(folder, { recursive: true, force: true }));

function tree(root, prefix = '') {
  return readdirSync(join(root, prefix)).sort().flatMap((name) => {
    const path = join(prefix, name);
    return statSync(join(root, path)).isDirectory() ? tree(root, path) : [[path, createHash('sha256').update(readFileSync(join(root, path))).digest('hex')]];
  });
}

test('two builds in two places are the same files, byte for byte', () => {
  const [one, other] = [tree(at('a/site')), tree(at('elsewhere/and/deeper/site'))];
  assert.ok(one.length > 40, `${one.length} files`);
  assert.deepEqual(other, one);
});

test('the answer that lies beside the page is the core\'s', async () => {
  const core = await loadParts(at('a/site'), ['ledger.wasm']);
  const stored = JSON.parse(readFileSync(at('a/site/first_answer.json'), 'utf8'));
  assert.equal(core.version(), stored.version);
  assert.equal(core.catalogue(), stored.catalogue);
  assert.equal(core.predict(stored.question), stored.answer);
  assert.match(JSON.parse(stored.answer).report.peaks.phase, /^step/);
});

test('archives are the same bytes, and their checksums hold', () => {
  assert.equal(readFileSync(at('a/SHA256SUMS'), 'utf8'), readFileSync(at('elsewhere/and/deeper/SHA256SUMS'), 'utf8'));
  assert.match(run('sha256sum', ['--check', 'SHA256SUMS'], { cwd: at('a') }), /tar\.gz: OK/);
  const listed = run('tar', ['--list', '--verbose', '--numeric-owner', '--file', at('a', readdirSync(at('a')).find((name) => name.endsWith('.tar.gz')))]);
  assert.match(listed, /0\/0 .*1970-01-01 .*memory-ledger-site-[\d.]+\/index\.html/);
});

test('nothing in the site names this machine or another origin but the one it may ask', () => {
  for (const [name] of tree(at('a/site')).filter(([path]) => /\.(js|html|css|json)$/.test(path))) {
    const text = readFileSync(at('a/site', name), 'utf8');
    assert.ok(!text.includes(ROOT.replace(/\/$/, '')), name);
    const loaded = [...text.matchAll(/(?:src|href)="(https?:[^"]*)"/g)].map((match) => match[1]).filter((url) => /\.(js|css|wasm|png|woff2?)$/.test(url));
    assert.deepEqual(loaded, [], name);
  }
});

test('the package installs without scripts or dependencies, and its types and entries are there', () => {
  const manifest = JSON.parse(readFileSync(at('npm/package.json'), 'utf8'));
  assert.equal(manifest.scripts, undefined);
  assert.equal(manifest.dependencies, undefined);
  assert.equal(manifest.version, JSON.parse(readFileSync(join(ROOT, 'web/package.json'), 'utf8')).version);
  for (const entry of Object.values(manifest.exports).flatMap((value) => (typeof value === 'string' ? [value] : Object.values(value)))) {
    if (!entry.includes('*')) statSync(at('npm', entry));
  }
  for (const name of ['ledger.wasm', 'ledger.js', 'LICENSE', 'README.md']) statSync(at('npm', name));
  for (const name of ['README.md', 'embedding.md', 'embedding.zh.md']) {
    for (const [, target] of readFileSync(at('npm', name), 'utf8').matchAll(/\]\((?!https?:|#)([^)#]+)/g)) statSync(at('npm', target));
  }
  run('node', [join(ROOT, 'web/node_modules/typescript/bin/tsc'), '--noEmit', '--strict', '--lib', 'es2022,dom', '--module', 'nodenext', at('npm/index.d.ts')]);
  const packed = JSON.parse(run('npm', ['pack', '--dry-run', '--json', '--ignore-scripts', at('npm')], { cwd: folder }));
  assert.ok(packed[0].files.some(({ path }) => path === 'embed.js'));
});
