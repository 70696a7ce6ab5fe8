// split.mjs - cuts ledger.wasm in two with binaryen's wasm-split: ledger_first.wasm holds every function that answering an embed's
// usual questions runs, ledger_rest.wasm all others. ledger.wasm itself stays whole, for whoever wants one file.
//
//   node split.mjs --binaryen FOLDER_OF_ITS_PROGRAMS --dir BUILD_FOLDER --checkpoints FOLDER_OF_THEIR_CONFIGS
//
// Which functions run is not guessed: an instrumented copy answers those questions here. A function of the first part that calls one
// of the rest finds a placeholder there, until the rest is instantiated over the first part's table (web/src/core/module.ts).

import { execFileSync } from 'node:child_process';
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';

const { values: flags } = parseArgs({ options: { binaryen: { type: 'string' }, dir: { type: 'string' }, checkpoints: { type: 'string' } } });
const FEATURES = ['--enable-mutable-globals', '--enable-sign-ext', '--enable-nontrapping-float-to-int', '--enable-bulk-memory'];
const file = (name) => join(flags.dir, name);
const run = (program, input, ...options) => execFileSync(join(flags.binaryen, program), [file(input), ...FEATURES, ...options], { stdio: ['ignore', 'inherit', 'inherit'] });
const split = (...options) => run('wasm-split', 'ledger.wasm', ...options);

// What courses embed: full fine-tuning, LoRA and QLoRA of a decoder, with and without recomputation, short and long, on cards that
// hold it and on one that does not.
const crossed = (recipes, changes) => recipes.flatMap((recipe) => changes.map((change) => ({ ...recipe, ...change })));
const USUAL = crossed(crossed([{}, { method: 'lora', rank: 8 }, { method: 'qlora', rank: 64 }], [{}, { checkpointing: 'full' }, { checkpointing: 'full', autocast: true }]),
  [{}, { seq: 512, batch: 8, gpu: 'h200-141gb' }, { seq: 8192, batch: 4, gpu: 'rtx4090-24gb' }]);
const MODELS = ['llama-3-8b', 'llama-3.2-1b', 'llama-2-7b', 'mistral-7b', 'qwen2.5-7b', 'qwen3-8b', 'tinyllama-1.1b'];
const QUESTIONS = [...crossed(MODELS.map((model) => ({ model })), USUAL.map((recipe) => ({ recipe }))), { model: 'course-8x-linear-2048', recipe: { precision: 'fp32' } }];

function askUsualQuestions(core) {
  core.version();
  core.catalogue();
  for (const { model, recipe } of QUESTIONS) {
    const { config } = JSON.parse(readFileSync(join(flags.checkpoints, `${model}.json`), 'utf8'));
    const answer = JSON.parse(core.predict(JSON.stringify({ config: JSON.stringify(config), recipe, timeline_points: 400 })));
    if (!answer.report) throw new Error(`no answer to ${model}, ${JSON.stringify(recipe)}: ${JSON.stringify(answer).slice(0, 200)}`);
  }
}

async function profile() {
  const wasm = readFileSync(file('instrumented.wasm'));
  const { default: createLedger } = await import(pathToFileURL(file('ledger.js')).href);
  let exports;
  const core = await createLedger({
    instantiateWasm(imports, done) {
      WebAssembly.instantiate(wasm, imports).then(({ instance, module }) => { exports = instance.exports; done(instance, module); });
      return {};
    },
  });
  askUsualQuestions(core);
  const memory = Object.values(exports).find((value) => value instanceof WebAssembly.Memory);
  const size = exports.__write_profile(0, 0);
  const at = memory.buffer.byteLength;
  memory.grow(Math.ceil(size / 65536));
  exports.__write_profile(at, size);
  writeFileSync(file('profile.data'), Buffer.from(memory.buffer, at, size));
}

split('--instrument', '-o', file('instrumented.wasm'));
await profile();
split(`--profile=${file('profile.data')}`, '-o1', file('ledger_first.wasm'), '-o2', file('ledger_rest.wasm'), '--export-prefix=%');
run('wasm-opt', 'ledger_first.wasm', '-O3', '-o', file('ledger_first.wasm')); // what lost its callers goes
for (const name of ['instrumented.wasm', 'profile.data']) rmSync(file(name));
