// What a first visit transfers, with brotli as static hosts serve it.

import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { brotliCompressSync } from 'node:zlib';
import { SITE } from './support.mjs';

const FIRST_LOAD = 120 * 1024;

test('the first load is within 120 KB, all files together, in either language', () => {
  const texts = readdirSync(join(SITE, 'texts'));
  for (const lang of ['en', 'zh']) {
    const names = ['index.html', 'page.css', 'page.js', 'ledger.js', 'ledger.wasm', ...texts.filter((name) => name.startsWith(`texts_${lang}`)).map((name) => `texts/${name}`)];
    assert.equal(names.length, 6, names.join());
    const sizes = names.map((name) => [name, brotliCompressSync(readFileSync(join(SITE, name))).length]);
    const total = sizes.reduce((all, [, size]) => all + size, 0);
    assert.ok(total <= FIRST_LOAD, `${lang}: ${total} B of ${FIRST_LOAD} B: ${sizes.map((row) => row.join(' ')).join(', ')}`);
  }
});
