// build.mjs - writes the static site: node web/build.mjs [--wasm DIR] [--out DIR] [--measured DIR]
//
// DIR of --wasm holds ledger.js, ledger.wasm and its two parts (default ../build/wasm, where the preset wasm-release leaves them); the
// site goes to --out (default ../build/site). --measured: a folder of probe results to lay beside the page.

import { build, transform } from 'esbuild';
import { createHash } from 'node:crypto';
import { copyFile, mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { existsSync } from 'node:fs';
import { join, relative, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';
import { gzipSync, brotliCompressSync } from 'node:zlib';
import { checkpoints, readCheckpoints } from './checkpoints.mjs';
import { PAGES, shell, singleShell } from './shell.mjs';

const here = new URL('.', import.meta.url).pathname;
const { values: flags } = parseArgs({
  options: { wasm: { type: 'string' }, out: { type: 'string' }, measured: { type: 'string' }, quiet: { type: 'boolean' } },
});
const wasmDir = resolve(flags.wasm ?? join(here, '../build/wasm'));
const out = resolve(flags.out ?? join(here, '../build/site'));

const MODULES = ['ledger', 'oom', 'lesson'];
const WASM = ['ledger.wasm', 'ledger_first.wasm', 'ledger_rest.wasm', 'oom.wasm', 'lesson.wasm']; // the ledger whole and in two parts
for (const name of [...MODULES.map((module) => `${module}.js`), ...WASM]) {
  if (!existsSync(join(wasmDir, name))) fail(`${name} is not in ${wasmDir}. Build the WASM module first, or name its folder with --wasm DIR.`);
}

// css`...` without values in it is minified like any style sheet. In embeds, lengths do not follow the host page's font size,
// which is made for other text: 1rem is --ledger-rem there, 16 px unless the host says otherwise.
const minifyStyles = (embedded = false) => ({
  name: 'minify-styles',
  setup({ onLoad }) {
    onLoad({ filter: /src[\\/](components|course|embed|styles)[\\/].*\.ts$/ }, async ({ path }) => {
      const source = await readFile(path, 'utf8');
      const sheets = [...source.matchAll(/css`([^`$\\]*)`/g)];
      const small = await Promise.all(sheets.map(([, text]) => transform(embedded ? hostLengths(text) : text, { loader: 'css', minify: true, charset: 'utf8' })));
      return { contents: source.replace(/css`([^`$\\]*)`/g, () => `css\`${small.shift().code.trim()}\``), loader: 'ts' };
    });
  },
});

// Queries take no variables; 1rem is the browser's own font size there.
function hostLengths(css) {
  return css.split(/(@media[^{]*)/).map((part) => (part.startsWith('@media') ? part : part.replace(/(-?\d*\.?\d+)rem\b/g, 'calc($1*var(--ledger-rem,16px))'))).join('');
}

const UNUSED = { 'd3-interpolate': join(here, 'src/format/d3_unused.ts'), 'd3-format': join(here, 'src/format/d3_unused.ts') };
const COMMON = { bundle: true, minify: true, target: 'es2022', charset: 'utf8', legalComments: 'none', logLevel: 'warning', alias: UNUSED };
const MODULE = { ...COMMON, splitting: true, chunkNames: 'parts/[name]-[hash]', outdir: out, format: 'esm', plugins: [minifyStyles(), checkpoints], define: { __SINGLE__: 'false' } };

// Entries of one call share their parts; what a reader may never open is a call of its own, so that the page's first load
// is cut by nobody else's needs.
async function bundle() {
  for (const folder of ['parts', 'texts']) await rm(join(out, folder), { recursive: true, force: true }); // names carry hashes
  await mkdir(join(out, 'parts'), { recursive: true });
  await build({ entryPoints: [join(here, 'src/styles/page.css')], outfile: join(out, 'page.css'), bundle: true, minify: true, charset: 'utf8', logLevel: 'warning' });
  const shared = await bundleOf({ page: 'src/page.ts', worker: 'src/worker.ts' }, 'page.js');
  await bundleOf({ oom_view: 'src/components/oom_view.ts' }, 'oom_view.js');
  await bundleOf({ snapshot_view: 'src/components/snapshot_view.ts' }, 'snapshot_view.js');
  await bundleOf({ snapshot_worker: 'src/snapshot_worker.ts' }, 'snapshot_worker.js');
  await writeFile(join(out, 'index.html'), shell(PAGES.page, shared));
  await mkdir(join(out, 'course'), { recursive: true });
  await writeFile(join(out, 'course/index.html'), shell(PAGES.course, await bundleOf({ course: 'src/course.ts' }, 'course.js')));
  await bundleEmbeds();
  return shared;
}

// <memory-ledger> for other pages, the page that stands in a frame, and the script that gives frames their height.
async function bundleEmbeds() {
  const small = { ...COMMON, bundle: false, alias: undefined };
  await build({ entryPoints: [join(here, 'src/styles/frame.css')], outfile: join(out, 'frame.css'), bundle: true, minify: true, charset: 'utf8', logLevel: 'warning' });
  await build({ ...small, entryPoints: [join(here, 'src/host.js')], outfile: join(out, 'host.js') });
  const shared = await bundleOf({ frame: 'src/frame.ts', embed: 'src/embed.ts' }, 'frame.js', { plugins: [minifyStyles(true), checkpoints], loader: { '.css': 'text' } });
  await mkdir(join(out, 'embed'), { recursive: true });
  await writeFile(join(out, 'embed/index.html'), shell(PAGES.frame, shared));
}

// Writes the bundle; answers with the files that `first` imports at once.
async function bundleOf(entries, first, more = {}) {
  const entryPoints = Object.fromEntries(Object.entries(entries).map(([name, path]) => [name, join(here, path)]));
  const { metafile, outputFiles } = await build({ ...MODULE, ...more, entryPoints, metafile: true, write: false });
  for (const { path, text } of outputFiles) await writeFile(path, withoutIndents(text));
  return importsOf(metafile, first);
}

// The page as one file that opens by a double click: the script is a classic one, the policy names it and the style by
// their hashes.
async function writeSingle(page, entry, name) {
  const file = (module, kind) => join(wasmDir, `${module}.${kind}`);
  const inside = Object.fromEntries(MODULES.flatMap((module) => [[`${module}-glue`, file(module, 'js')], [`${module}-wasm`, file(module, 'wasm')]]));
  const { outputFiles: [script] } = await build({
    ...COMMON, entryPoints: [join(here, entry)], write: false, format: 'iife', plugins: [minifyStyles(), checkpoints, singleModule],
    alias: { ...UNUSED, ...inside }, loader: { '.wasm': 'binary' }, define: { __SINGLE__: 'true', 'import.meta.url': 'location.href' },
  });
  const code = withoutIndents(script.text).replaceAll('</script', '<\\/script');
  const style = await readFile(join(out, page.style), 'utf8');
  const hash = (text) => `'sha256-${createHash('sha256').update(text).digest('base64')}'`;
  await writeFile(join(out, name), singleShell(page, { style, styleHash: hash(style), code, codeHash: hash(code) }));
}

// A file that loads a module from beside the page stands in for the one that has it inside.
const singleModule = {
  name: 'single-module',
  setup({ onLoad, onResolve }) {
    onResolve({ filter: /\/module\.js$/ }, () => ({ path: join(here, 'src/core/module_single.ts') }));
    for (const part of ['core/oom_module', 'core/views', 'course/lesson_module', 'snapshot/start_worker']) {
      onResolve({ filter: new RegExp(`/${part.split('/')[1]}\\.js$`) }, () => ({ path: join(here, `src/${part}_single.ts`) }));
    }
    onResolve({ filter: /^snapshot-worker-code$/ }, ({ path }) => ({ path, namespace: 'worker' }));
    onLoad({ filter: /.*/, namespace: 'worker' }, async () => {
      const { outputFiles: [worker] } = await build({ ...COMMON, entryPoints: [join(here, 'src/snapshot_worker.ts')], write: false, format: 'iife' });
      return { contents: worker.text, loader: 'text' };
    });
  },
};

// Everything that a visit may ask for, but for measurements, which are looked for anew each time.
async function writeServiceWorker() {
  const names = ['index.html', 'page.css', 'page.js', 'worker.js', 'oom_view.js', 'snapshot_view.js', 'snapshot_worker.js', 'course/index.html', 'course.js', 'first_answer.json', ...MODULES.map((module) => `${module}.js`), ...WASM, ...(await readdir(join(out, 'parts'))).map((name) => `parts/${name}`)];
  const contents = await Promise.all(names.map((name) => readFile(join(out, name))));
  const version = createHash('sha256').update(Buffer.concat(contents)).digest('hex').slice(0, 12);
  const source = await readFile(join(here, 'src/sw.js'), 'utf8');
  const { code } = await transform(source.replace('@version@', version).replace("'@files@'", names.map((name) => JSON.stringify(name)).join(', ')), { minify: true });
  await writeFile(join(out, 'sw.js'), code);
}

// In minified code, line breaks stand in templates alone: between tags one space does.
function withoutIndents(code) {
  return code.replace(/\n +/g, ' ');
}

// Files that `entry` imports at once, by their paths in the site.
function importsOf({ outputs }, entry) {
  const byName = new Map(Object.entries(outputs).map(([path, output]) => [relative(out, resolve(path)), output]));
  return byName.get(entry).imports.filter(({ kind }) => kind === 'import-statement').map(({ path }) => relative(out, resolve(path)));
}

async function writeGlue() {
  for (const module of MODULES) {
    const glue = await transform(await readFile(join(wasmDir, `${module}.js`), 'utf8'), { minify: true, format: 'esm' });
    await writeFile(join(out, `${module}.js`), glue.code);
  }
  for (const name of WASM) if (wasmDir !== out) await copyFile(join(wasmDir, name), join(out, name));
}

// The answer to the question that the page opens with (src/core/stored.ts), from the core that lies beside it.
async function writeFirstAnswer() {
  const { outputFiles: [source] } = await build({ entryPoints: [join(here, 'src/core/first_question.ts')], bundle: true, format: 'esm', write: false, plugins: [checkpoints] });
  const { question } = await import(`data:text/javascript;base64,${Buffer.from(source.contents).toString('base64')}`);
  const { default: createLedger } = await import(pathToFileURL(join(wasmDir, 'ledger.js')).href);
  const core = await createLedger({ wasmBinary: await readFile(join(wasmDir, 'ledger.wasm')) });
  const answer = core.predict(question);
  if (!JSON.parse(answer).report) fail(`the core has no answer to the page's first question: ${answer.slice(0, 300)}`);
  await writeFile(join(out, 'first_answer.json'), JSON.stringify({ version: core.version(), catalogue: core.catalogue(), question, answer }));
}

// Plain config.json files, for whoever wants one as a file.
async function writePresets() {
  await mkdir(join(out, 'presets'), { recursive: true });
  for (const { id, config } of await readCheckpoints()) {
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

async function report(shared) {
  let total = 0;
  const texts = (await readdir(join(out, 'parts'))).filter((name) => name.startsWith('en-')).map((name) => `parts/${name}`);
  for (const name of ['index.html', 'page.css', 'page.js', ...shared, ...texts, 'first_answer.json']) {
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
const shared = await bundle();
await writeGlue();
await writeFirstAnswer();
await writePresets();
await writeSingle(PAGES.page, 'src/page.ts', 'memory-ledger.html');
await writeSingle(PAGES.course, 'src/course.ts', 'memory-ledger-course.html');
await writeServiceWorker();
await writeMeasured();
if (!flags.quiet) await report(shared);
