// The reader of errors that the page loads and the native one answer with the same bytes.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

const build = new URL('../../build/', import.meta.url);
const { default: createOom } = await import(new URL('wasm/oom.js', build));
const oom = await createOom({ wasmBinary: readFileSync(new URL('wasm/oom.wasm', build)) });

const MESSAGE = 'CUDA out of memory. Tried to allocate 96.00 MiB. GPU 2 has a total capacity of 79.25 GiB of which 50.00 MiB is free. Process 12 has ' +
  '17179869184.00 GiB memory in use. Including non-PyTorch memory, this process has 78.00 GiB memory in use. Of the allocated memory 77.00 GiB is ' +
  'allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but unallocated.';
const TEXTS = [
  '', 'it does not work', MESSAGE, `[rank1]:   loss.backward()\n[rank1]: ${MESSAGE}`, 'exits with return code = -9', '全参数微调 zero-2 batch_size为1 OOM',
  'OOM when allocating tensor with shape[4,12,512,512] and type half', 'Used 20.50G of 15.50G hbm. Exceeded hbm capacity by 5.00G. XLA:TPU compile permanent error.',
  `Loading checkpoint shards:  40%|####| 4/10 [00:08<00:12]\n${MESSAGE.replace('96.00', '9\n6.00')}`, '\ud800 broken \u0000 CUDA out of memory', 'x'.repeat(5_000_000) + MESSAGE,
];
const REPORT = { kind: 'predicted', model: { params: 1000000000, trainable: 1000000000 }, peaks: { allocated_bytes: 1e10, reserved_bytes: 1.1e10, device_bytes: 1.2e10, device_band_bytes: [1.15e10, 1.25e10] },
  phases: [{ name: 'load', allocated_peak_bytes: 2e9 }], at_peak: { tensors: [{ name: 'w', category: 'weights', op: 'param', dtype: 'bf16', element_bytes: 2, count: 2, bytes: 2 * 96 * 2 ** 20 }] } };
const REQUESTS = [...TEXTS.map((text) => JSON.stringify({ text })), JSON.stringify({ text: MESSAGE, report: REPORT }), '{}', '{', '{"text": 1}'];

test('explanations are the same bytes', () => {
  const lines = REQUESTS.map((request) => `explain ${request}`).join('\n');
  const native = execFileSync(new URL('bin/predict_cli', build).pathname, { input: lines, maxBuffer: 2 ** 28 }).toString('utf8').split('\n').slice(0, -1);
  assert.equal(native.length, REQUESTS.length);
  REQUESTS.forEach((request, i) => assert.equal(oom.explain(request), native[i], request.slice(0, 80)));
});
