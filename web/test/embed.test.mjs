// An embed's attributes are a link, and a link's words are attributes: nothing is lost on the way, mistakes are passed on.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DEFAULTS, KEYS } from './catalogue.mjs';
import { load } from './load.mjs';

const { attributesOf, hashOf, viewsOf } = await load('embed/attributes.ts');
const { readHash } = await load('state/hash.ts');

const keys = [...KEYS, { name: 'adapter_dtype', kind: 'choice', choices: ['fp32', 'bf16'] }, { name: 'checkpointing', kind: 'choice', choices: ['none', 'full'] }];
const defaults = { ...DEFAULTS, adapter_dtype: 'fp32', checkpointing: 'none' };
const read = async (attributes, config) =>
  readHash(await hashOf(Object.entries(attributes).map(([name, value]) => ({ name, value })), config), keys, defaults);

test('recipe keys are attributes, with dashes or underscores; a flag alone is true', async () => {
  const { request, problems } = await read({ model: 'llama-2-7b', method: 'lora', 'lora-dropout': '0.05', adapter_dtype: 'bf16', compile: '', class: 'x', 'data-y': '1', view: 'bar', theme: 'dark' });
  assert.deepEqual(problems, []);
  assert.equal(request.model.id, 'llama-2-7b');
  assert.deepEqual(request.recipe, { method: 'lora', lora_dropout: 0.05, adapter_dtype: 'bf16', compile: true });
});

test('what is neither a key nor HTML’s own is named, and bad values keep the default', async () => {
  const { request, problems } = await read({ bacth: '2', seq: 'many', model: 'llama-9' });
  assert.deepEqual(problems.map(({ where }) => where).sort(), ['bacth', 'model', 'seq']);
  assert.deepEqual(request.recipe, {});
});

test('a config inside the element stands before a model’s name', async () => {
  const { request } = await read({ model: 'llama-2-7b', seq: '512' }, '{"layers": [{"linear": [2, 3]}]}');
  assert.equal(request.model.kind, 'custom');
  assert.equal(request.model.text, '{"layers": [{"linear": [2, 3]}]}');
});

test('scenarios stand side by side, of the same model', async () => {
  const { request, problems } = await read({ model: 'llama-2-7b', with: 'method=lora; method=qlora, checkpointing=full' });
  assert.deepEqual(problems, []);
  assert.deepEqual(request.pins.map(({ recipe }) => recipe), [{ method: 'lora' }, { method: 'qlora', checkpointing: 'full' }]);
  assert.ok(request.pins.every(({ model }) => model.id === 'llama-2-7b'));
});

test('views are those asked for, in the page’s order; none is the bar', () => {
  assert.deepEqual(viewsOf('ledger, verdict'), ['verdict', 'ledger']);
  assert.deepEqual(viewsOf('poetry'), ['bar']);
  assert.deepEqual(viewsOf(null), ['bar']);
});

test('a link becomes attributes and the attributes the same link', async () => {
  const hash = '#v=1&model=llama-2-7b&method=lora&lora_dropout=0.05&seq=1024&pin=model%3Dllama-2-7b%26method%3Dqlora';
  const attributes = attributesOf(hash);
  assert.deepEqual(attributes.find(({ name }) => name === 'lora-dropout'), { name: 'lora-dropout', value: '0.05' });
  const again = await readHash(await hashOf(attributes, undefined), keys, defaults);
  const direct = await readHash(hash, keys, defaults);
  assert.deepEqual(again, direct);
  assert.deepEqual(attributesOf('#"><script>=1&ok=2'), [{ name: 'ok', value: '2' }]);
});
