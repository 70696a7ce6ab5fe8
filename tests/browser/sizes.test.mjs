// What a first visit transfers: every file that the browser asks for until the page is at rest, as brotli, which static
// hosts serve.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { brotliCompressSync } from 'node:zlib';
import { launch, openSite, ready } from './support.mjs';

// The goal is 120 KiB (web/README.md). Each family and recipe that the core learns adds to the WASM; until number reading
// and the bindings are slimmer, this bar keeps it from growing unnoticed.
const FIRST_LOAD = 140 * 1024;
const GOAL = 120 * 1024;

let browser;
let site;
before(async () => {
  [browser, site] = await Promise.all([launch(), openSite()]);
});
after(async () => {
  await browser?.close();
  await site?.close();
});

for (const lang of ['en', 'zh']) {
  test(`the first load is within its bar, all files together: ${lang}`, async () => {
    const context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
    const page = await context.newPage();
    const files = new Map();
    page.on('response', (response) => files.set(new URL(response.url()).pathname, response));
    await page.goto(`${site.url}#v=1&lang=${lang}`);
    await ready(page);
    await page.waitForLoadState('networkidle');
    const sizes = [];
    for (const [path, response] of files) sizes.push([path, brotliCompressSync(await response.body()).length]);
    await context.close();
    const total = sizes.reduce((all, [, size]) => all + size, 0);
    const list = sizes.map((row) => row.join(' ')).join(', ');
    assert.ok(sizes.some(([path]) => path.endsWith('.wasm')), list);
    console.log(`first load ${lang}: ${total} B, goal ${GOAL} B`);
    assert.ok(total <= FIRST_LOAD, `${total} B of ${FIRST_LOAD} B: ${list}`);
  });
}
