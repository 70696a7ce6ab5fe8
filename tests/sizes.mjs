// Prints what a reader's browser has to load, against the budgets; never fails.
import { existsSync, readFileSync, readdirSync, statSync } from 'node:fs';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { brotliCompressSync } from 'node:zlib';

const build = fileURLToPath(new URL('../build/', import.meta.url));
const BUDGETS_KB = { 'wasm/ledger_first.wasm': 80, 'first load': 120 };

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

// First load: what index.html needs before anything is chosen; presets, measured results, other languages and embeds come on demand.
const ON_DEMAND = /^(presets|measured|embed|examples|docs|schema|icons)\/|^parts\/(?!en-|chunk-)|^worker\.js$|single|offline|\.(png|webmanifest|txt|xml)$|^sw\.js$|^oom|^ledger_rest/;
const site = join(build, 'site');
const total = [0, 0];
for (const path of existsSync(site) ? files(site) : []) {
  const name = relative(site, path);
  const sizes = [statSync(path).size, compressed(path)];
  const first = !ON_DEMAND.test(name);
  row(`${first ? '' : '  on demand: '}site/${name}`, ...sizes);
  if (first) sizes.forEach((size, i) => { total[i] += size; });
}
row('first load', ...total);
