// run.mjs - fuzzes one target of page.cjs: node tests/fuzz/page/run.mjs FOLDER TARGET EFFORT SEED CORPUS FOUND
// EFFORT: seconds, or with an x behind it the number of inputs.
//
// Guided by coverage: V8 counts the blocks of page.cjs that each input runs (Profiler.takePreciseCoverage), and an input that reaches
// a new one joins the corpus. The target runs in a worker; this thread watches it, and an input that throws, takes more than a
// minute (as for libFuzzer's targets: other work may share the processor) or 2 GiB is written to FOUND. (Jazzer.js would do this,
// but its binaries need a C library newer than Debian 12's.)

import { createHash } from 'node:crypto';
import inspector from 'node:inspector';
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';
import { Mutator } from './mutate.mjs';

const LONGEST_MS = 60_000;
const LARGEST_MB = 2048;
const ROOM = 16_384;
const BATCH = 64; // counting blocks takes longer than running an input

async function watch([folder, target, effort, seed, corpus, found]) {
  const shared = new SharedArrayBuffer(ROOM + 8);
  const worker = new Worker(fileURLToPath(import.meta.url), {
    workerData: { folder: resolve(folder), target, effort, seed: Number(seed), corpus, shared }, resourceLimits: { maxOldGenerationSizeMb: LARGEST_MB },
  });
  const [length, turn] = [new Int32Array(shared, 0, 1), new Int32Array(shared, 4, 1)];
  const keep = (why) => {
    const input = Buffer.from(new Uint8Array(shared, 8, Atomics.load(length, 0)));
    const path = join(found, `${target}-${createHash('sha256').update(input).digest('hex').slice(0, 12)}`);
    writeFileSync(path, input);
    console.error(`${target}: ${why}\nthe input is in ${path}: ${JSON.stringify(input.toString().slice(0, 300))}`);
    process.exit(1);
  };
  let last = -1;
  const patience = setInterval(() => {
    const now = Atomics.load(turn, 0);
    if (now === last && now > 0) keep(`longer than ${LONGEST_MS / 1000} s`);
    last = now;
  }, LONGEST_MS);
  worker.on('error', (error) => keep(error.stack ?? String(error)));
  worker.on('message', ({ failure, done }) => {
    if (failure) keep(failure);
    clearInterval(patience);
    console.log(done);
  });
}

// The blocks that ran since the last call.
function coverage(path) {
  const session = new inspector.Session();
  session.connect();
  const ask = (method, parameters) => {
    let answer;
    session.post(method, parameters, (error, result) => { if (error) throw error; answer = result; });
    return answer;
  };
  ask('Profiler.enable');
  ask('Profiler.startPreciseCoverage', { callCount: true, detailed: true });
  return () => {
    const script = ask('Profiler.takePreciseCoverage').result.find(({ url }) => url.endsWith(path));
    return (script?.functions ?? []).flatMap(({ ranges }) => ranges.filter(({ count }) => count > 0).map(({ startOffset, endOffset, count }) => `${startOffset}-${endOffset}:${Math.min(8, Math.floor(Math.log2(count)))}`));
  };
}

// String literals of the targets' own code: keys, values, marks.
function wordsOf(source) {
  return [...new Set([...source.matchAll(/["'`]([A-Za-z_][\w .:/-]{1,30})["'`]/g)].map(([, word]) => word))].slice(0, 3000);
}

async function fuzz({ folder, target, effort, seed, corpus, shared }) {
  const [length, turn, room] = [new Int32Array(shared, 0, 1), new Int32Array(shared, 4, 1), new Uint8Array(shared, 8)];
  const code = join(folder, 'page.cjs');
  const ran = coverage('page.cjs');
  const run = createRequire(import.meta.url)(code)[target];
  const mutator = new Mutator(seed, wordsOf(readFileSync(code, 'utf8')));
  const [seen, inputs] = [new Set(), []];
  mkdirSync(corpus, { recursive: true });
  let tries = 0;
  const put = async (input) => {
    room.set(input.subarray(0, ROOM));
    Atomics.store(length, 0, Math.min(input.length, ROOM));
    Atomics.add(turn, 0, 1);
    tries += 1;
    await run(input);
  };
  const isNew = () => {
    const fresh = ran().filter((block) => !seen.has(block));
    fresh.forEach((block) => seen.add(block));
    return fresh.length > 0;
  };
  const take = (input) => {
    inputs.push(input);
    mutator.learn(input);
  };
  for (const dir of [join(folder, 'seeds', target), corpus]) {
    for (const name of readdirSync(dir).sort()) {
      const input = readFileSync(join(dir, name)).subarray(0, ROOM);
      await put(input);
      take(input);
    }
  }
  isNew();
  const begun = Date.now();
  const amount = Number.parseInt(effort, 10);
  const goesOn = effort.endsWith('x') ? () => tries < amount : () => Date.now() < begun + amount * 1000;
  while (goesOn()) {
    const batch = Array.from({ length: BATCH }, () => mutator.mutate(mutator.pick(inputs), mutator.pick(inputs)));
    for (const input of batch) await put(input);
    const blocks = ran().filter((block) => !seen.has(block));
    if (blocks.length === 0) continue;
    for (const input of batch) { // which of them was it?
      await put(input);
      if (!isNew()) continue;
      take(input);
      writeFileSync(join(corpus, createHash('sha256').update(input).digest('hex').slice(0, 16)), input);
    }
    blocks.forEach((block) => seen.add(block));
  }
  return `${target}: ${tries} inputs in ${Math.round((Date.now() - begun) / 1000)} s, ${inputs.length} kept, ${seen.size} blocks reached`;
}

if (isMainThread) await watch(process.argv.slice(2));
else {
  fuzz(workerData).then((done) => parentPort.postMessage({ done }), (error) => parentPort.postMessage({ failure: error.stack ?? String(error) }));
}
