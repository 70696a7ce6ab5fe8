// Memory snapshots: read in every protocol and in any chunks, never run, and summed to the byte.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { load, WEB } from './load.mjs';

const { PickleError, Unpickler } = await load('snapshot/unpickle.ts');
const { digest } = await load('snapshot/digest.ts');
const { framesOf, originOf, placeOf } = await load('snapshot/origins.ts');
const { readSnapshot } = await load('snapshot/read.ts');
const { looksLikeSnapshot } = await load('state/recognise.ts');

const FOLDER = join(WEB, '../tests/fixtures/snapshots');
const bytes = (name) => new Uint8Array(readFileSync(join(FOLDER, name)));
const expected = JSON.parse(readFileSync(join(FOLDER, 'expected.json'), 'utf8'));
const asJson = JSON.parse(readFileSync(join(FOLDER, 'snapshot.json'), 'utf8'));

function unpickle(data, chunk = data.length) {
  const machine = new Unpickler();
  for (let at = 0; at < data.length && !machine.done; at += chunk) machine.feed(data.slice(at, at + chunk));
  return machine.finish();
}

const faultOf = (data, chunk) => {
  try {
    unpickle(data, chunk);
  } catch (error) {
    if (error.fault) return error.fault;
    throw error;
  }
  return undefined;
};

for (const protocol of [0, 1, 2, 3, 4, 5]) {
  test(`protocol ${protocol} reads as Python wrote it`, () => assert.deepEqual(unpickle(bytes(`protocol-${protocol}.pickle`)), asJson));
}

test('chunks may end anywhere', () => {
  for (const chunk of [1, 2, 3, 7, 64, 1000]) assert.deepEqual(unpickle(bytes('protocol-4.pickle'), chunk), asJson);
  assert.deepEqual(unpickle(bytes('protocol-0.pickle'), 5), asJson);
});

test('values of every plain kind', () => {
  const value = unpickle(bytes('other.pickle'));
  assert.deepEqual(value, { loss: [1.5, 2.5, Infinity], steps: 1n << 70n, name: '训练', raw: new Uint8Array([0, 255]), set: [1], none: null, no: false, t: [1, 2] });
});

test('what would run code is refused by name, and nothing of it is run', () => {
  assert.deepEqual(faultOf(bytes('runs.pickle')), { kind: 'runs_code', opcode: 'STACK_GLOBAL', at: 44 });
  assert.equal(faultOf(bytes('another.pickle')).opcode, 'GLOBAL');
  for (const [code, opcode] of [[0x52, 'REDUCE'], [0x62, 'BUILD'], [0x81, 'NEWOBJ'], [0x69, 'INST'], [0x6f, 'OBJ'], [0x82, 'EXT1'], [0x51, 'BINPERSID']]) {
    assert.deepEqual(faultOf(new Uint8Array([0x80, 4, 0x4e, code])), { kind: 'runs_code', opcode, at: 3 });
  }
});

test('keys do not reach the prototype of other objects', () => {
  const key = [0x8c, 9, ...new TextEncoder().encode('__proto__')];
  const value = unpickle(new Uint8Array([0x80, 4, 0x7d, ...key, 0x7d, 0x8c, 1, 0x61, 0x4b, 7, 0x73, 0x73, 0x2e]));
  assert.deepEqual(Object.keys(value), []);
  assert.equal(value.a, undefined);
  assert.equal({}.a, undefined);
});

test('damaged and cut files say where', () => {
  const whole = bytes('protocol-4.pickle');
  assert.deepEqual(faultOf(bytes('cut.pickle')), { kind: 'cut_short', at: Math.floor(whole.length / 2) });
  assert.equal(faultOf(new Uint8Array([0x80, 4, 0xff])).kind, 'unknown_opcode');
  assert.equal(faultOf(new Uint8Array([0x80, 4, 0x65])).kind, 'damaged'); // APPENDS without a list
  assert.equal(faultOf(new Uint8Array([0x80, 4, 0x68, 9])).kind, 'damaged'); // BINGET of nothing
  assert.equal(faultOf(new Uint8Array([0x80, 4, 0x8e, 255, 255, 255, 255, 255, 255, 255, 255])).kind, 'damaged'); // a length beyond any file
});

// Mutations: a value or a fault, whatever the bytes; never another error, never long.
test('thousands of mutations end in a value or a fault', () => {
  let seed = 20261130;
  const below = (n) => { seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0; return Math.floor((seed / 2 ** 32) * n); };
  const sources = [2, 4].map((protocol) => bytes(`protocol-${protocol}.pickle`));
  let read = 0;
  for (let round = 0; round < 3000; ++round) {
    const data = sources[below(2)].slice();
    for (let edits = 1 + below(4); edits > 0; --edits) data[below(data.length)] = below(256);
    try {
      const devices = digest(unpickle(data, 1 + below(5000)));
      assert.ok(Array.isArray(devices));
      ++read;
    } catch (error) {
      assert.ok(error instanceof PickleError || error.constructor.name === 'NotASnapshot', String(error.stack));
    }
  }
  assert.ok(read > 100, String(read));
});

const [device] = digest(asJson);

test('the peak and what was alive there, to the byte', () => {
  assert.equal(digest(asJson).length, 1);
  assert.equal(device.device, expected.device);
  assert.equal(device.events, expected.events);
  assert.equal(device.peak.requested, expected.peak.requested);
  const kinds = {};
  for (const group of device.groups) kinds[group.kind] = (kinds[group.kind] ?? 0) + group.bytes;
  assert.deepEqual(kinds, { ...expected.kinds });
  assert.equal(device.groups.reduce((all, group) => all + group.bytes, 0), device.peak.requested);
});

test('the end of the record and what failed', () => {
  assert.deepEqual(device.end, expected.end);
  assert.deepEqual(device.failed, expected.failed);
});

test('every point of the timeline sums to its tensors, and the last is the end', () => {
  for (const point of device.points) assert.equal(point.categories.reduce((all, part) => all + part, 0), point.tensor_bytes, String(point.event));
  assert.equal(device.points.at(-1).event, device.events);
  assert.equal(device.points.at(-1).tensor_bytes, expected.end.requested);
  assert.equal(device.points.at(-1).reserved_bytes, expected.end.reserved);
  assert.equal(Math.max(...device.points.map((point) => point.tensor_bytes)), device.peak.requested);
  assert.ok(device.points.some((point) => point.event === device.peak.event));
  // What was freed in the record and allocated before it counts from the first event on.
  assert.equal(device.points[0].tensor_bytes, 13 * 2 ** 20 + 100);
});

test('a long history keeps its peak in a few hundred points', () => {
  const event = (action, addr, size) => ({ action, addr, size, stream: 0, frames: [] });
  const events = [];
  for (let i = 0; i < 50_000; ++i) events.push(event('alloc', i, i === 31_234 ? 1e9 : 1000), event('free_completed', i, i === 31_234 ? 1e9 : 1000));
  const [long] = digest({ segments: [], device_traces: [events] });
  assert.ok(long.points.length <= 402, String(long.points.length));
  assert.equal(Math.max(...long.points.map((point) => point.tensor_bytes)), 1e9);
  assert.equal(long.peak.event, 2 * 31_234 + 1);
  assert.equal(long.points.at(-1).tensor_bytes, 0);
});

test('snapshots of older versions: sizes in the history of a block, events called free', () => {
  const blocks = [{ size: 1024, state: 'active_allocated', history: [{ addr: 1, real_size: 1000 }] }];
  const [old] = digest({ segments: [{ device: 0, address: 1, total_size: 2 ** 21, blocks }], device_traces: [[{ action: 'alloc', addr: 9, size: 50, stream: 0 }, { action: 'free', addr: 9, size: 50, stream: 0 }]] });
  assert.equal(old.end.requested, 1000);
  assert.equal(old.peak.requested, 1050);
  assert.equal(old.recorded, false);
});

test('what an allocation is for is told by its frames', () => {
  const frame = (filename, name) => ({ filename, line: 1, name });
  const of = (...frames) => originOf(frames, true);
  assert.equal(of(), 'backward');
  assert.equal(originOf([], false), 'unknown');
  assert.equal(of(frame('/x/torch/nn/modules/linear.py', 'forward')), 'activations');
  assert.equal(of(frame('/x/torch/nn/modules/module.py', 'convert')), 'weights');
  assert.equal(of(frame('/x/bitsandbytes/optim/optimizer.py', 'init_state')), 'optimizer_states');
  assert.equal(of(frame('/x/bitsandbytes/optim/optimizer.py', 'get_state_buffer')), 'optimizer_states');
  assert.equal(of(frame('/x/torch/optim/sgd.py', '_multi_tensor_sgd')), 'temporaries');
  assert.equal(of(frame('/x/torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py', 'foreach_all_gather')), 'communication');
  assert.equal(of(frame('??', 'torch::autograd::Engine::evaluate_function')), 'backward');
  assert.equal(of(frame('/home/me/train.py', 'main')), 'unknown');
  assert.equal(placeOf([frame('/x/torch/nn/modules/linear.py', 'forward'), frame('/a/transformers/models/llama/modeling_llama.py', 'forward')]), 'llama/modeling_llama.py:1 forward');
  assert.equal(placeOf([]), '');
});

test('files are told from others by their first bytes, and read from a Blob', async () => {
  const blob = (name) => new Blob([bytes(name)]);
  for (const name of ['protocol-2.pickle', 'protocol-5.pickle', 'snapshot.json', 'runs.pickle']) assert.equal(await looksLikeSnapshot(blob(name)), true, name);
  assert.equal(await looksLikeSnapshot(new Blob(['{"model_type":"llama"}'])), false);
  for (const name of ['protocol-4.pickle', 'snapshot.json']) {
    const shares = [];
    const read = await readSnapshot(blob(name), (share) => shares.push(share));
    assert.equal(read.ok, true);
    assert.equal(read.devices[0].peak.requested, expected.peak.requested);
  }
  assert.deepEqual(await readSnapshot(blob('other.pickle'), () => {}), { ok: false, fault: { kind: 'not_a_snapshot' } });
  assert.equal((await readSnapshot(blob('runs.pickle'), () => {})).fault.kind, 'runs_code');
});

// What a hostile file does with few bytes.
test('a tuple as a key is not written out: it may be as long as memory', () => {
  const doubled = Array.from({ length: 60 }, () => [0x32, 0x86]).flat(); // DUP, TUPLE2: each holds the last one twice
  const started = performance.now();
  assert.deepEqual(unpickle(new Uint8Array([0x80, 4, 0x7d, 0x4b, 1, ...doubled, 0x4b, 7, 0x73, 0x2e])), { '(…)': 7 });
  assert.ok(performance.now() - started < 1000);
});

test('an integer of a megabyte is damage', () => {
  const length = 1 << 20;
  const data = new Uint8Array(6 + length + 1).fill(0x7f);
  data.set([0x80, 4, 0x8b, ...new Uint8Array(new Uint32Array([length]).buffer)].slice(2), 0);
  assert.equal(faultOf(data).kind, 'damaged');
});

test('sizes beyond any GPU are none, and frames of other kinds say nothing', () => {
  const frame = { filename: { toString: 1 }, line: { valueOf: 1 }, name: ['a'] };
  const block = (size) => ({ address: size, size, requested_size: size, state: 'active_allocated', frames: [frame] });
  const [told] = digest({ segments: [{ device: 0, total_size: 2 ** 53, blocks: [block(2 ** 60), block(512), { ...block(1024), state: { toString: 1 } }] }], device_traces: [[{ action: { toString: 1 }, addr: 1, size: 5, frames: [frame] }]] });
  assert.deepEqual(told.end, { requested: 512, allocated: 512, reserved: 0, largest_free: 0 });
  assert.equal(told.peak.requested, 512);
});

test('paths and names are looked at up to a length: patterns take longer on longer ones', () => {
  const started = performance.now();
  const [frame] = framesOf([{ filename: `${'/optim/'.repeat(300_000)}x`, line: 1, name: 'Backward'.repeat(300_000) }]);
  assert.equal(originOf([frame], true), 'unknown');
  assert.ok(performance.now() - started < 1000);
});

test('as many devices as segments are grouped in one walk', () => {
  const segments = Array.from({ length: 50_000 }, (_, device) => ({ device, total_size: 512, blocks: [] }));
  const started = performance.now();
  assert.equal(digest({ segments, device_traces: [] }).length, segments.length);
  assert.ok(performance.now() - started < 10_000);
});
