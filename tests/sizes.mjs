// Prints what a reader's browser has to load, against the budgets; never fails.
import { existsSync, readFileSync, readdirSync, statSync } from 'node:fs';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { brotliCompressSync } from 'node:zlib';

const build = fileURLToPath(new URL('../build/', import.meta.url));
const BUDGETS_KB = { 'wasm/ledger_first.wasm': 80, 'site/first_answer.json': 20 };

function* files(folder) {
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) yield* files(path);
    else if (!/\.(br|gz|map)$/.test(entry.name)) yield path;
  }
}

function row(name, raw, compressed) {
  const kb = (bytes) => (bytes / 1000).toFixed(1).padStart(8);
  const budget = BUDGETS_KB[name];
  const verdict = budget === undefined ? '' : compressed <= budget * 1000 ? `  (budget ${budget})` : `  OVER the budget of ${budget}`;
  console.log(`${name.padEnd(36)}${kb(raw)} KB raw ${kb(compressed)} KB brotli${verdict}`);
}

const compressed = (path) => brotliCompressSync(readFileSync(path)).length;
for (const name of ['wasm/ledger_first.wasm', 'wasm/ledger_rest.wasm']) {
  if (existsSync(join(build, name))) row(name, statSync(join(build, name)).size, compressed(join(build, name)));
}

// What a visit transfers, and when, tests/browser/sizes.test.mjs measures; here stands what each file of the site weighs.
const site = join(build, 'site');
const paths = existsSync(site) ? [...files(site)].map((path) => ({ path, name: relative(site, path) })) : [];
const presets = paths.filter(({ name }) => name.startsWith('presets/'));
for (const { path, name } of paths.filter((each) => !presets.includes(each))) row(`site/${name}`, statSync(path).size, compressed(path));
const sum = (of) => presets.reduce((all, { path }) => all + of(path), 0);
if (presets.length > 0) row(`site/presets/ (${presets.length} files)`, sum((path) => statSync(path).size), sum(compressed));
