// What a first visit transfers, with brotli as static hosts serve it.

import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { brotliCompressSync } from 'node:zlib';
import { SITE } from './support.mjs';

const BUDGET = { 'index.html': 1_500, 'page.css': 2_000, 'page.js': 46_000, 'ledger.js': 8_000, 'ledger.wasm': 80_000 };
const TEXTS = 9_000; // one language's
const FIRST_LOAD = 120 * 1024;

test('each file of the first load is within its budget, and all together within 120 KB', () => {
  let total = 0;
  const english = readdirSync(join(SITE, 'texts')).filter((name) => name.startsWith('texts_en')).map((name) => [`texts/${name}`, TEXTS]);
  for (const [name, most] of [...Object.entries(BUDGET), ...english]) {
    const size = brotliCompressSync(readFileSync(join(SITE, name))).length;
    assert.ok(size <= most, `${name}: ${size} B of ${most} B`);
    total += size;
  }
  assert.ok(total <= FIRST_LOAD, `${total} B of ${FIRST_LOAD} B`);
});
