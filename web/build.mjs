// build.mjs - writes the static site: node web/build.mjs [--wasm DIR] [--out DIR] [--measured DIR]
//
// DIR of --wasm holds ledger.js and ledger.wasm (default ../build/wasm, where the preset wasm-release leaves them); the
// site goes to --out (default ../build/site). --measured: a folder of probe results to lay beside the page.

import { build, transform } from 'esbuild';
import { copyFile, mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { existsSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { gzipSync, brotliCompressSync } from 'node:zlib';

const here = new URL('.', import.meta.url).pathname;
const { values: flags } = parseArgs({
  options: { wasm: { type: 'string' }, out: { type: 'string' }, measured: { type: 'string' }, quiet: { type: 'boolean' } },
});
const wasmDir = resolve(flags.wasm ?? join(here, '../build/wasm'));
const out = resolve(flags.out ?? join(here, '../build/site'));

for (const name of ['ledger.js', 'ledger.wasm', 'oom.js', 'oom.wasm']) {
  if (!existsSync(join(wasmDir, name))) fail(`${name} is not in ${wasmDir}. Build the WASM module first, or name its folder with --wasm DIR.`);
}

// css`...` without values in it is minified like any style sheet.
const minifyStyles = {
  name: 'minify-styles',
  setup({ onLoad }) {
    onLoad({ filter: /src[\\/](components|styles)[\\/].*\.ts$/ }, async ({ path }) => {
      const source = await readFile(path, 'utf8');
      const sheets = [...source.matchAll(/css`([^`$\\]*)`/g)];
      const small = await Promise.all(sheets.map(([, text]) => transform(text, { loader: 'css', minify: true, charset: 'utf8' })));
      return { contents: source.replace(/css`([^`$\\]*)`/g, () => `css\`${small.shift().code.trim()}\``), loader: 'ts' };
    });
  },
};

async function bundle() {
  const unused = join(here, 'src/format/d3_unused.ts');
  await rm(join(out, 'texts'), { recursive: true, force: true }); // names carry hashes
  await build({
    entryPoints: { page: join(here, 'src/page.ts') }, splitting: true, chunkNames: 'texts/[name]-[hash]',
    outdir: out, bundle: true, minify: true, format: 'esm', target: 'es2022', charset: 'utf8', legalComments: 'none', logLevel: 'warning',
    alias: { 'd3-interpolate': unused, 'd3-format': unused }, plugins: [minifyStyles],
  });
  // What an error needs, loaded with the first one: a bundle of its own, so that the page's first load shares nothing with it.
  await build({
    entryPoints: { oom_view: join(here, 'src/components/oom_view.ts') }, splitting: true, chunkNames: 'texts/[name]-[hash]',
    outdir: out, bundle: true, minify: true, format: 'esm', target: 'es2022', charset: 'utf8', legalComments: 'none', logLevel: 'warning', plugins: [minifyStyles],
  });
  await build({ entryPoints: [join(here, 'src/styles/page.css')], outfile: join(out, 'page.css'), minify: true, charset: 'utf8', logLevel: 'warning' });
  await copyFile(join(here, 'src/index.html'), join(out, 'index.html'));
}

async function writeGlue() {
  for (const module of ['ledger', 'oom']) {
    const glue = await transform(await readFile(join(wasmDir, `${module}.js`), 'utf8'), { minify: true, format: 'esm' });
    await writeFile(join(out, `${module}.js`), glue.code);
    if (wasmDir !== out) await copyFile(join(wasmDir, `${module}.wasm`), join(out, `${module}.wasm`));
  }
}

// Plain config.json files, for the command line that the page shows.
async function writePresets() {
  await mkdir(join(out, 'presets'), { recursive: true });
  for (const name of await readdir(join(here, 'presets'))) {
    const { id, config } = JSON.parse(await readFile(join(here, 'presets', name), 'utf8'));
    await writeFile(join(out, 'presets', `${id}.json`), `${JSON.stringify(config, null, 2)}\n`);
  }
}

async function writeMeasured() {
  const names = flags.measured ? (await readdir(flags.measured)).filter((name) => name.endsWith('.json') && name !== 'index.json').sort() : [];
  await mkdir(join(out, 'measured'), { recursive: true });
  for (const name of names) await copyFile(join(flags.measured, name), join(out, 'measured', name));
  const index = join(out, 'measured/index.json');
  if (flags.measured || !existsSync(index)) await writeFile(index, `${JSON.stringify({ samples: names })}\n`);
}

async function report() {
  let total = 0;
  const texts = (await readdir(join(out, 'texts'))).filter((name) => name.startsWith('en-')).map((name) => `texts/${name}`);
  for (const name of ['index.html', 'page.css', 'page.js', ...texts, 'ledger.js', 'ledger.wasm']) {
    const bytes = await readFile(join(out, name));
    const small = brotliCompressSync(bytes).length;
    total += small;
    console.log(`${name.padEnd(26)} ${String(bytes.length).padStart(8)} B  gzip ${String(gzipSync(bytes).length).padStart(7)} B  brotli ${String(small).padStart(7)} B`);
  }
  console.log(`first load: brotli ${total} B`);
}

function fail(message) {
  console.error(`build.mjs: ${message}`);
  process.exit(1);
}

await mkdir(out, { recursive: true });
await bundle();
await writeGlue();
await writePresets();
await writeMeasured();
if (!flags.quiet) await report();
