import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';
import { DEFAULTS, KEYS } from './catalogue.mjs';
import { load } from './load.mjs';

const { readHash, writeHash } = await load('state/hash.ts');
const { pack, unpack } = await load('state/codec.ts');
const read = (hash) => readHash(hash, KEYS, DEFAULTS);

test('an empty hash is the first request, without problems', async () => {
  const { request, problems } = await read('');
  assert.deepEqual(problems, []);
  assert.deepEqual(request.model, { kind: 'preset', id: 'llama-3-8b' });
  assert.deepEqual(request.recipe, {});
});

test('every link ever shipped opens, and is written in the newest form', async () => {
  const links = JSON.parse(await readFile(new URL('../../tests/fixtures/web/permalinks.json', import.meta.url), 'utf8'));
  for (const { link, request, newest } of links) {
    const found = await read(link);
    assert.deepEqual(found.problems, [], link);
    assert.deepEqual(found.request.recipe, request.recipe, link);
    assert.deepEqual(found.request.model, request.model, link);
    assert.equal(writeHash(found.request), newest, link);
  }
});

test('defaults are left out of the hash', async () => {
  const { request } = await read('#v=1&model=llama-3-8b&batch=1&seq=2048&targets=all-linear&compile=false');
  assert.equal(writeHash(request), '#v=1&model=llama-3-8b');
});

const BAD = [
  ['#v=9', 'v'], ['#v=x', 'v'], ['#batch=0', 'batch'], ['#batch=1e3', 'batch'], ['#batch=-4', 'batch'], ['#method=Lora', 'method'],
  ['#compile=perhaps', 'compile'], ['#lang=fr', 'lang'], ['#show=kb', 'show'], ['#model=gpt-9', 'model'], ['#config=%%%', 'config'],
  ['#config=AAAA', 'config'], ['#gpu=a-toaster', 'gpu'], ['#nonsense=1', 'nonsense'], ['#targets=', 'targets'], ['#lora_dropout=wet', 'lora_dropout'],
  ['#__proto__=1', '__proto__'], ['#&&&==&%E0%A4%A', undefined],
];
for (const [hash, where] of BAD) {
  test(`a bad link is reported and never throws: ${hash}`, async () => {
    const { request, problems } = await read(hash);
    if (where) assert.equal(problems[0]?.where, where);
    assert.deepEqual(request.recipe, {});
    assert.equal(request.model.kind, 'preset');
  });
}

test('a custom config survives the way through the URL, byte for byte', async () => {
  const text = JSON.stringify({ model_type: 'llama', note: '词表 🎉', hidden_size: 64 });
  const packed = await pack(text);
  assert.match(packed, /^[A-Za-z0-9_-]+$/);
  assert.equal(await unpack(packed), text);
  const { request, problems } = await read(`#v=1&config=${packed}&batch=3`);
  assert.deepEqual(problems, []);
  assert.equal(request.model.text, text);
  assert.equal(writeHash(request), `#v=1&config=${packed}&batch=3`);
});

test('a link that inflates to more than a file may have is refused', async () => {
  const packed = await pack('0'.repeat(9 * 1024 * 1024));
  assert.ok(packed.length < 20_000);
  assert.equal(await unpack(packed), undefined);
});
