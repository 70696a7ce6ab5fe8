// The course's module and the native core answer with the same bytes: rounding is the same everywhere.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

const build = new URL('../../build/', import.meta.url);
const { default: createLesson } = await import(new URL('wasm/lesson.js', build));
const lesson = await createLesson({ wasmBinary: readFileSync(new URL('wasm/lesson.wasm', build)) });
const config = JSON.parse(readFileSync(new URL('../fixtures/configs/llama-3.1-8b.json', import.meta.url), 'utf8'));

const FORMATS = ['fp32', 'tf32', 'bf16', 'fp16', 'fp8_e4m3', 'fp8_e5m2', 'nf4'];
const VALUES = [0, -0, 1, 1.00001, -0.1, 1e-8, 5.9e-8, 65519.99, 65520, 464, 464.01, 1e39, 1e-46, 3.4028235677973366e38, 0.0078125];
const REQUESTS = [
  { about: 'formats' }, { about: 'poetry' }, {},
  ...FORMATS.flatMap((format) => VALUES.map((value) => ({ about: 'number', format, value }))),
  ...FORMATS.flatMap((format) => [0, 1, 7, 15].map((bits) => ({ about: 'number', format, bits }))),
  ...Array.from({ length: 256 }, (_, bits) => ({ about: 'number', format: 'fp8_e4m3', bits })),
  { about: 'update', weight: 1, update: 1e-5, steps: 1000 }, { about: 'update', weight: 0.1, update: -3e-4, steps: 5000 },
  { about: 'scaling', gradients: [1e-8, 0.3, 3, -7e-6], scale: 65536 }, { about: 'tensor', shape: [1000, 1000] },
  ...['full', 'lora', 'qlora'].map((method) => ({ about: 'ledger', config, recipe: { method, dp: 8, seq: 4096 } })),
  { about: 'ledger', config, params: 7e10, trained_per_mille: 13, recipe: { method: 'lora' } },
  ...['tensor', 'pipeline', 'expert'].map((kind) => ({ about: 'cut', kind, ways: 8, config, recipe: {} })),
].map((request) => JSON.stringify(request));

test('lessons are the same bytes', () => {
  const lines = REQUESTS.map((request) => `lesson ${request}`).join('\n');
  const native = execFileSync(new URL('bin/predict_cli', build).pathname, { input: lines, maxBuffer: 2 ** 26 }).toString('utf8').split('\n').slice(0, -1);
  assert.equal(native.length, REQUESTS.length);
  REQUESTS.forEach((request, i) => assert.equal(lesson.lesson(request), native[i], request.slice(0, 80)));
});
