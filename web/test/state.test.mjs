import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DEFAULTS, KEYS } from './catalogue.mjs';
import { load } from './load.mjs';

const { recognise } = await load('state/recognise.ts');
const { probeCommand } = await load('state/command.ts');
const { FIRST_REQUEST, readValue, withRecipe } = await load('state/request.ts');
const { PRESETS } = await load('state/presets.ts');
const { keysOf, isUsed, withoutUnused } = await load('state/form_keys.ts');
const { begin, isShown, SCENARIOS } = await load('state/scenarios.ts');

const TEXTS = [
  ['{"model_type": "llama", "hidden_size": 64}', 'config'], ['{"layers": [{"linear": [4, 4]}]}', 'config'], ['{"method": "lora", "batch": 2}', 'recipe'],
  ['{"batch": 2, "tyop": 1}', 'recipe'], ['{"kind": "measured", "schema_version": "1.0"}', 'measured'], ['{"kind": "predicted", "model": {"config": {}}}', 'report'],
  ['\uFEFF{"seq": 5}', 'recipe'], ['{"tokenizer_class": "X"}', 'config'], ['not json', 'config'], ['[1, 2]', 'config'], ['', 'config'], ['null', 'config'],
  ['{"peft_type": "LORA", "r": 8}', 'recipe'],
];
const ERRORS = [
  'RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB', 'CUDA out of memor\ny. Tried', '> C**UDA out of memory', 'exits with return code = -9',
  'Traceback (most recent call last):\n  File "a.py"', 'RESOURCE_EXHAUSTED: Out of memory', 'CUBLAS_STATUS_ALLOC_FAILED', '单卡 32G 提示显存不足', 'it OOMs, why is that an OOM?',
];
for (const text of ERRORS) test(`${text} is taken as an error`, () => assert.equal(recognise(text, KEYS).kind, 'error'));
test('JSON about memory is no error', () => assert.equal(recognise('{"model_type": "out of memory"}', KEYS).kind, 'config'));

for (const [text, kind] of TEXTS) test(`${text || '(nothing)'} is taken as ${kind}`, () => assert.equal(recognise(text, KEYS).kind, kind));

test('an adapter_config.json becomes the recipe it says', () => {
  const found = recognise('{"peft_type": "LORA", "r": 8, "target_modules": ["q_proj"], "lora_dropout": 0.1, "use_dora": null, "bias": "none"}', KEYS);
  assert.deepEqual(found.recipe, { method: 'lora', rank: 8, targets: ['q_proj'], lora_dropout: 0.1 });
});

test('a key set back to its default leaves the request', () => {
  const changed = withRecipe(FIRST_REQUEST, { batch: 4, targets: ['all-linear'] }, DEFAULTS);
  assert.deepEqual(changed.recipe, { batch: 4 });
  assert.deepEqual(withRecipe(changed, { batch: 1 }, DEFAULTS).recipe, {});
});

test('values are read by their kind, or not at all', () => {
  const key = (name) => KEYS.find((row) => row.name === name);
  assert.equal(readValue(key('batch'), ' 12 '), 12);
  assert.equal(readValue(key('batch'), '1.5'), undefined);
  assert.equal(readValue(key('batch'), '99999999999999999999'), undefined);
  assert.equal(readValue(key('compile'), 'true'), true);
  assert.deepEqual(readValue(key('targets'), 'q_proj, v_proj'), ['q_proj', 'v_proj']);
  assert.equal(readValue(key('lora_dropout'), '0.05'), 0.05);
  assert.equal(readValue(key('gpu'), 'toaster'), undefined);
});

test('the command line measures what is shown', () => {
  const request = withRecipe(FIRST_REQUEST, { method: 'lora', lora_dropout: 0.1, gpu: 'a100-80gb', targets: ['q_proj', 'v_proj'] }, DEFAULTS);
  assert.equal(probeCommand(request), 'probe --model llama-3-8b.json --method lora --lora-dropout 0.1 --gpu a100-80gb --targets q_proj,v_proj --json measured.json');
});

test('presets have distinct ids, a source and a config', () => {
  assert.equal(new Set(PRESETS.map((preset) => preset.id)).size, PRESETS.length);
  for (const { source, config, params } of PRESETS) assert.ok(source && Object.keys(config).length > 0 && params > 0);
});

test('adapters have their keys under LoRA and QLoRA, 4-bit weights under QLoRA, decoders what plain stacks have not', () => {
  const used = (method, plain = false) => ['rank', 'dora', 'double_quant', 'seq', 'batch'].filter((name) => isUsed(name, { method }, plain));
  assert.deepEqual(used('full'), ['seq', 'batch']);
  assert.deepEqual(used('lora'), ['rank', 'dora', 'seq', 'batch']);
  assert.deepEqual(used('qlora'), ['rank', 'dora', 'double_quant', 'seq', 'batch']);
  assert.deepEqual(used('full', true), ['batch']);
});

test('generating has keys of its own, and none that only training reads', () => {
  const used = (recipe) => ['task', 'optimizer', 'method', 'rank', 'double_quant', 'new_tokens', 'kv_cache', 'seq'].filter((name) => isUsed(name, recipe, false));
  assert.deepEqual(used({}), ['task', 'optimizer', 'method', 'seq']);
  assert.deepEqual(used({ task: 'generate' }), ['task', 'new_tokens', 'kv_cache', 'seq']);
  assert.deepEqual(used({ task: 'generate', weights: 'nf4' }), ['task', 'double_quant', 'new_tokens', 'kv_cache', 'seq']);
  assert.deepEqual(withoutUnused({ task: 'generate', method: 'lora', rank: 8, new_tokens: 5 }, false), { task: 'generate', new_tokens: 5 });
});

test('what a recipe makes no use of leaves it', () => {
  assert.deepEqual(withoutUnused({ rank: 8, dora: true, batch: 2 }, false), { batch: 2 });
  assert.deepEqual(withoutUnused({ method: 'lora', rank: 8, double_quant: false }, false), { method: 'lora', rank: 8 });
  assert.deepEqual(withoutUnused({ method: 'qlora', rank: 8, seq: 64, batch: 2 }, true), { batch: 2 });
});

test('every key stands in one group of the form, one of a newer core too', () => {
  const keys = [...KEYS, { name: 'brand_new', kind: 'flag' }];
  const placed = ['main', 'adapter', 'more', 'gpus'].flatMap((group) => keysOf(group, keys).map((key) => key.name));
  assert.deepEqual([...placed].sort(), keys.map((key) => key.name).sort());
  assert.ok(keysOf('more', keys).some((key) => key.name === 'brand_new'));
});

test('a scenario sets model and recipe, and leaves the card to the reader', () => {
  const mine = withRecipe(FIRST_REQUEST, { gpu: 'a100-80gb', batch: 7 }, DEFAULTS);
  for (const scenario of SCENARIOS) {
    assert.ok(PRESETS.some((preset) => preset.id === scenario.preset));
    const request = begin(scenario, mine, DEFAULTS);
    assert.equal(request.recipe.gpu, 'a100-80gb');
    assert.equal(request.recipe.batch, undefined);
    assert.deepEqual(SCENARIOS.filter((other) => isShown(other, request)), [scenario]);
  }
  assert.ok(!SCENARIOS.some((scenario) => isShown(scenario, mine)));
});
