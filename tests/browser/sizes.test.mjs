// What a first visit transfers, as brotli, which static hosts serve: until the answer stands on the first screen, the core, and
// what lies below the first screen (web/README.md, "What is loaded when").

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { brotliCompressSync } from 'node:zlib';
import { ready, shared } from './support.mjs';

const GOAL = 120 * 1024;
const FIRST_LOAD = 53_000; // what it was when this was written, and 2 KiB; six keys of Megatron and one of FSDP more in the form
const BELOW = 27 * 1024; // charts, ledger, advice, texts and worker, all together
const CORE = 271_000; // each family and recipe that the core learns adds to it: 20 KB for images of Qwen-VL and Llama 4 and for ranks that share matrices, 17 KB for plans of DDP, FSDP and ZeRO, sharded adapters, 4-bit weights and experts, and Megatron's experts, 11 KB for context parallelism in five forms and Liger-Kernel, 11 KB for torchtitan's pipelines and experts, shards in host memory and more adapters under ZeRO and FSDP, 10 KB for Megatron's own modules, latent attention and stages of any layers, DeepSpeed's offloaded steps and passes that are copied

const open = shared();

async function sizesOf(responses) {
  const sizes = await Promise.all(responses.map(async (response) => [new URL(response.url()).pathname, brotliCompressSync(await response.body()).length]));
  return { list: sizes.map((row) => row.join(' ')).join(', '), total: sizes.reduce((all, [, size]) => all + size, 0) };
}

for (const lang of ['en', 'zh']) {
  test(`the first load is within its bar, all files together: ${lang}`, async () => {
    const context = await open.browser.newContext({ viewport: { width: 1280, height: 900 }, serviceWorkers: 'block' });
    const page = await context.newPage();
    const asked = [];
    page.on('request', (request) => asked.push(request));
    await page.goto(`${open.site.url}#v=1&lang=${lang}`);
    await ready(page);
    await page.locator('ml-advice tbody tr').first().waitFor({ timeout: 60_000 });
    const place = (pattern) => asked.findIndex((request) => pattern.test(request.url()));
    const [after, below] = [place(/\/ledger\.(js|wasm)$/), place(/\/below-/)];
    assert.ok(after > 0 && below > after, 'first the first screen, then the core, then what lies below');
    const responses = await Promise.all(asked.map((request) => request.response()));
    const once = responses.filter((response, i) => responses.findIndex((other) => other.url() === response.url()) === i);
    const between = (from, to) => sizesOf(once.filter((response) => { const at = asked.findIndex((request) => request.url() === response.url()); return at >= from && at < to; }));
    const [first, core, rest] = [await between(0, after), await between(after, below), await between(below, Infinity)];
    await context.close();
    assert.match(first.list, /first_answer\.json/);
    assert.doesNotMatch(first.list, /\.wasm/);
    console.log(`first load ${lang}: ${first.total} B, goal ${GOAL} B; the core: ${core.total} B; below the first screen: ${rest.total} B`);
    assert.ok(first.total <= FIRST_LOAD, `${first.total} B of ${FIRST_LOAD} B: ${first.list}`);
    assert.ok(core.total <= CORE, `${core.total} B of ${CORE} B: ${core.list}`);
    assert.ok(rest.total <= BELOW, `${rest.total} B of ${BELOW} B: ${rest.list}`);
  });
}
