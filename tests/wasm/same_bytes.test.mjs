// The shipped WebAssembly core, whole and in its two parts, and the native one answer every request with the same bytes.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { before, test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { requests } from '../requests.mjs';
import { loadParts } from './parts.mjs';

const build = new URL('../../build/', import.meta.url);
const all = requests();
let core;
let parts;
let native;

before(async () => {
  const { default: createLedger } = await import(new URL('wasm/ledger.js', build));
  core = await createLedger({ wasmBinary: readFileSync(new URL('wasm/ledger.wasm', build)) });
  parts = await loadParts(fileURLToPath(new URL('wasm/', build)), ['ledger_first.wasm', 'ledger_rest.wasm']);
  const lines = ['version', 'catalogue', ...all.map(({ request }) => `predict ${request}`)];
  const output = execFileSync(new URL('bin/predict_cli', build).pathname, { input: lines.join('\n'), maxBuffer: 2 ** 30 });
  native = output.toString('utf8').split('\n').slice(0, -1);
  assert.equal(native.length, lines.length, 'one answer a request');
});

test('version and catalogue', () => {
  assert.equal(core.version(), native[0]);
  assert.equal(core.catalogue(), native[1]);
});

test('there are reports and problems to compare', () => {
  const reports = native.filter((line) => line.startsWith('{"report"')).length;
  const problems = native.filter((line) => line.startsWith('{"problem"')).length;
  assert.ok(reports >= 10, `${reports} reports`);
  assert.ok(problems >= 5, `${problems} problems`);
});

function assertSame(answer, expected, which) {
  if (answer === expected) return;
  let at = 0;
  while (answer[at] === expected[at]) at++;
  const around = (text) => text.slice(Math.max(0, at - 80), at + 80);
  assert.fail(`differs at character ${at}\n  ${which}: ${around(answer)}\n  native: ${around(expected)}`);
}

for (const [i, { name, request }] of all.entries()) {
  test(name, () => {
    assertSame(core.predict(request), native[i + 2], 'whole');
    assertSame(parts.predict(request), native[i + 2], 'parts');
  });
}
