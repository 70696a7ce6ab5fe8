// The first of the core's two parts answers what embeds usually ask. That both answer everything is same_bytes.test.mjs's.
import assert from 'node:assert/strict';
import { readFileSync, statSync } from 'node:fs';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { loadParts, PartMissing } from './parts.mjs';

const folder = fileURLToPath(new URL('../../build/wasm/', import.meta.url));
const BOTH = ['ledger_first.wasm', 'ledger_rest.wasm'];
const whole = await loadParts(folder, ['ledger.wasm']);

const { config } = JSON.parse(readFileSync(new URL('../../core/config/checkpoints/llama-3-8b.json', import.meta.url), 'utf8'));
const asked = (recipe) => JSON.stringify({ config: JSON.stringify(config), recipe, timeline_points: 400 });

test('the first part answers the usual questions, to the byte, and is smaller', async () => {
  const first = await loadParts(folder, BOTH.slice(0, 1));
  assert.equal(first.catalogue(), whole.catalogue());
  for (const recipe of [{}, { method: 'lora', rank: 8, seq: 8192 }, { method: 'qlora', batch: 4, checkpointing: 'full' }]) assert.equal(first.predict(asked(recipe)), whole.predict(asked(recipe)));
  assert.ok(statSync(`${folder}ledger_first.wasm`).size < 0.8 * statSync(`${folder}ledger.wasm`).size);
});

test('what it lacks it says, instead of answering', async () => {
  const first = await loadParts(folder, BOTH.slice(0, 1));
  assert.throws(() => first.predict(asked({ stack: 'megatron', precision: 'megatron-bf16', tp: 2 })), PartMissing);
});
