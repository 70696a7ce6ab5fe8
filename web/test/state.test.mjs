import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DEFAULTS, KEYS } from './catalogue.mjs';
import { load } from './load.mjs';

const { recognise } = await load('state/recognise.ts');
const { probeCommand } = await load('state/command.ts');
const { FIRST_REQUEST, readValue, withRecipe } = await load('state/request.ts');
const { PRESETS } = await load('state/presets.ts');

const TEXTS = [
  ['{"model_type": "llama", "hidden_size": 64}', 'config'], ['{"layers": [{"linear": [4, 4]}]}', 'config'], ['{"method": "lora", "batch": 2}', 'recipe'],
  ['{"batch": 2, "tyop": 1}', 'recipe'], ['{"kind": "measured", "schema_version": "1.0"}', 'measured'], ['{"kind": "predicted", "model": {"config": {}}}', 'report'],
  ['\uFEFF{"seq": 5}', 'recipe'], ['{"tokenizer_class": "X"}', 'config'], ['not json', 'config'], ['[1, 2]', 'config'], ['', 'config'], ['null', 'config'],
];
for (const [text, kind] of TEXTS) test(`${text || '(nothing)'} is taken as ${kind}`, () => assert.equal(recognise(text, KEYS).kind, kind));

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
