// <memory-ledger> and its frame inside pages of others: plain, under a policy, in shadow roots, ten on a page.

import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { after, before, test } from 'node:test';
import { brotliCompressSync } from 'node:zlib';
import { createSite, listen } from '../../web/serve.mjs';
import { axe, launch, openPage, SITE } from './support.mjs';

const POLICY = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self' data:; connect-src 'self'; frame-src 'self'";
const STYLE = 'memory-ledger { display: block; min-height: 52.5rem; } memory-ledger[view=verdict] { min-height: 20rem; } body { max-width: 50rem; margin: 1rem auto; } iframe { width: 100%; border: 0; } .far { height: 4000px; }';

let browser;
let server;
let origin;
let pages = {};
let asked = [];

// A host's site: its own pages and style sheet, ours below /ledger/.
before(async () => {
  browser = await launch();
  const site = createSite(SITE, '/ledger/');
  server = createServer((request, response) => {
    asked.push(request.url);
    const path = request.url.split('?')[0];
    if (path === '/host.css') return response.writeHead(200, { 'Content-Type': 'text/css' }).end(STYLE);
    const page = pages[path];
    if (page === undefined) return site.emit('request', request, response);
    return response.writeHead(200, { 'Content-Type': 'text/html; charset=utf-8', ...(page.policy ? { 'Content-Security-Policy': page.policy } : {}) }).end(page.html);
  });
  origin = `http://127.0.0.1:${await listen(server, 0, '127.0.0.1')}`;
});
after(async () => {
  await browser?.close();
  server?.closeAllConnections();
  await new Promise((done) => server.close(done));
});

const document = (body, head = '<script type="module" src="/ledger/embed.js"></script>', lang = 'en') =>
  `<!doctype html><html lang="${lang}"><head><meta charset="utf-8"><title>Host</title><link rel="icon" href="data:,"><link rel="stylesheet" href="/host.css">${head}</head><body><main><h1>Host</h1>${body}</main></body></html>`;

async function host(html, run, { policy = POLICY, faulty = false, ...options } = {}) {
  pages = { '/': { html, policy } };
  asked = [];
  const { page, context, faults } = await openPage(browser, `${origin}/`, options);
  try {
    await run(page, context);
    if (!faulty) assert.deepEqual(faults, []);
  } finally {
    await context.close();
  }
}

const embed = (page, i = 0) => page.locator('memory-ledger').nth(i);
const report = (page, i = 0) => embed(page, i).evaluate((element) => element.report);

for (const view of ['verdict', 'bar', 'timeline', 'ledger', 'compare']) {
  test(`view ${view}, under a host’s policy, without axe’s violations, asking for nothing but its own files`, () => host(
    document(`<memory-ledger model="llama-3-8b" method="lora" rank="8" seq="4096" view="${view}"></memory-ledger>`), async (page, context) => {
      await embed(page).locator(`ml-${view === 'bar' ? 'capacity-bar' : view}`).waitFor();
      const { recipe, peaks } = await report(page);
      assert.equal(recipe.rank, 8);
      assert.equal(recipe.method, 'lora');
      assert.ok(peaks.allocated_bytes > 16e9);
      assert.deepEqual(await axe(page), []);
      assert.ok(asked.every((url) => url === '/' || url === '/host.css' || url.startsWith('/ledger/')), asked.join());
      assert.deepEqual(await context.cookies(), []);
      assert.equal(await page.evaluate(() => localStorage.length + sessionStorage.length), 0);
      assert.equal(await page.evaluate(async () => (await navigator.serviceWorker.getRegistrations()).length), 0);
    }));
}

test('attributes may change; each answer is an event, and mistakes are named', () => host(document('<memory-ledger view="bar" seq="1024"></memory-ledger>'), async (page) => {
  await embed(page).locator('ml-capacity-bar').waitFor();
  const change = (run) => embed(page).evaluate((element, source) => new Promise((done) => {
    element.addEventListener('memory-ledger-change', ({ detail }) => done({ ...detail, report: detail.report?.recipe }), { once: true });
    new Function('element', source)(element);
  }), run);
  const doubled = await change('element.setAttribute("seq", "2048")');
  assert.equal(doubled.report.seq, 2048);
  assert.match(doubled.hash, /model=llama-3-8b/);
  const refused = await change('element.setAttribute("compile", "true")');
  assert.equal(refused.report, undefined);
  assert.equal(refused.problem.code, 'unsupported_recipe');
  await embed(page).locator('ml-problem').waitFor();
  await change('element.removeAttribute("compile")');
  const wrong = await change('element.setAttribute("bacth", "2")');
  assert.equal(wrong.problem.code, 'bad_link');
  assert.equal(wrong.problem.where, 'bacth');
}, { policy: undefined }));

test('readers change what the author lets them, and the attributes follow', () => host(document('<memory-ledger view="verdict" controls="batch checkpointing gpu autocast"></memory-ledger>'), async (page) => {
  const element = embed(page);
  await element.locator('ml-verdict').waitFor();
  const before = (await report(page)).peaks.allocated_bytes;
  await element.getByLabel('Batch').fill('4');
  await page.waitForFunction((old) => document.querySelector('memory-ledger').report.peaks.allocated_bytes > old, before);
  assert.equal(await element.getAttribute('batch'), '4');
  await element.getByLabel('Checkpointing').selectOption('full');
  await element.locator('.controls label', { hasText: 'GPU' }).locator('select').selectOption('h200-141gb');
  await page.waitForFunction(() => document.querySelector('memory-ledger').report.verdict.gpu === 'h200-141gb');
  assert.equal(await element.getAttribute('checkpointing'), 'full');
  assert.equal(await element.locator('ml-question').count(), 0, 'nothing to edit where there is no form');
}, { policy: undefined }));

test('a model of the author’s own, in Chinese from an ancestor, in the theme asked for', () => host(document(
  `<div lang="zh"><memory-ledger view="bar" theme="dark"><script type="application/json">{"layers": [{"linear": [64, 96]}, {"linear": [96, 64]}]}</script></memory-ledger></div>`), async (page) => {
  await embed(page).locator('ml-capacity-bar').waitFor();
  assert.equal((await report(page)).model.params, 64 * 96 + 96 + 96 * 64 + 64);
  assert.match(await embed(page).locator('a').innerText(), /打开/);
  assert.equal(await embed(page).evaluate((element) => getComputedStyle(element).backgroundColor), 'rgb(22, 22, 20)');
  assert.deepEqual(await axe(page), []);
}, { policy: undefined }));

test('in a shadow root, and whatever the host’s font size is', () => host(document('<div id="shadow"></div>',
  '<script type="module" src="/ledger/embed.js"></script>'), async (page) => {
  await page.evaluate(() => {
    document.documentElement.style.fontSize = '10px';
    document.querySelector('#shadow').attachShadow({ mode: 'open' }).innerHTML = '<memory-ledger view="verdict"></memory-ledger>';
  });
  await page.locator('ml-verdict h2').waitFor();
  const size = await page.locator('ml-verdict .why').first().evaluate((element) => getComputedStyle(element).fontSize);
  assert.equal(size, '16px');
}, { policy: undefined }));

test('where the policy forbids WebAssembly, the element says so', () => host(document('<memory-ledger view="bar"></memory-ledger>'), async (page) => {
  await embed(page).locator('ml-problem .note').waitFor();
  assert.equal(await embed(page).locator('ml-problem .note').getAttribute('data-code'), 'wasm_blocked');
}, { policy: POLICY.replace(" 'wasm-unsafe-eval'", ''), faulty: true }));

test('nothing is computed until an embed comes near, then one core serves all', () => host(document(
  `<div class="far"></div>${'<memory-ledger view="bar"></memory-ledger>'.repeat(3)}`), async (page) => {
  await page.waitForTimeout(500);
  const modules = () => asked.filter((url) => url.endsWith('.wasm'));
  assert.ok(asked.includes('/ledger/embed.js'));
  assert.deepEqual(modules(), []);
  for (let i = 0; i < 3; ++i) {
    await embed(page, i).scrollIntoViewIfNeeded();
    await embed(page, i).locator('ml-capacity-bar').waitFor();
  }
  assert.deepEqual(modules(), ['/ledger/ledger_first.wasm']);
}));

test('ten embeds share one core; their weight, their time, and nothing that moves', { timeout: 120_000 }, async () => {
  const views = ['bar', 'verdict', 'bar', 'timeline', 'bar', 'ledger', 'verdict', 'compare', 'bar', 'verdict'];
  const measure = async (list) => {
    const elements = list.map((view, i) => `<memory-ledger view="${view}" seq="${1024 * (i + 1)}" method="lora"></memory-ledger>`);
    pages = { '/': { html: document(elements.join('\n')), policy: POLICY } };
    const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, locale: 'en-GB' });
    const page = await context.newPage();
    const sizes = new Map();
    page.on('response', (response) => { if (response.url().includes('/ledger/')) sizes.set(response.url(), response.body()); });
    await page.goto(`${origin}/`);
    const started = await page.evaluate(() => new Promise((done) => {
      let shift = 0;
      new PerformanceObserver((all) => all.getEntries().forEach((entry) => { shift += entry.value; })).observe({ type: 'layout-shift', buffered: true });
      const poll = () => (document.querySelector('memory-ledger').report ? setTimeout(() => done({ ms: performance.now() - 400, shift }), 400) : setTimeout(poll, 5));
      poll();
    }));
    for (let i = 0; i < list.length; ++i) {
      await embed(page, i).scrollIntoViewIfNeeded();
      await embed(page, i).locator('.foot').waitFor();
    }
    const bodies = await Promise.all([...sizes.values()]);
    await context.close();
    assert.equal([...sizes.keys()].filter((url) => url.endsWith('.wasm')).length, 1, 'one core');
    return { ...started, bytes: bodies.reduce((all, body) => all + brotliCompressSync(body).length, 0) };
  };
  const bars = await measure(Array(10).fill('bar'));
  const all = await measure(views);
  console.log(`ten bars: ${bars.bytes} B brotli, goal ${GOAL} B, first answer ${bars.ms.toFixed(0)} ms; ten of all views: ${all.bytes} B`);
  assert.ok(bars.bytes <= BARS, `${bars.bytes} B of ${BARS} B`);
  assert.ok(all.bytes <= ALL_VIEWS, `${all.bytes} B of ${ALL_VIEWS} B`);
  assert.equal(bars.shift, 0, 'a reserved height keeps the page still');
});
const GOAL = 150_000;
const BARS = 149_800; // what it was when this was written, and 2 KiB; 117 KB of it are the core's first part
const ALL_VIEWS = 171_800;

test('a frame is as high as its content, follows the address, and answers its parent alone', () => host(document(
  '<iframe data-memory-ledger title="Memory" src="/ledger/embed/#model=llama-3-8b&method=lora&seq=4096&view=bar&controls=batch" height="300"></iframe>',
  '<script src="/ledger/host.js" defer></script>'), async (page) => {
  const frame = page.frameLocator('iframe');
  await frame.locator('ml-capacity-bar table').waitFor();
  const heights = () => page.evaluate(() => {
    const frame = document.querySelector('iframe');
    return [frame.getBoundingClientRect().height, frame.contentDocument.documentElement.getBoundingClientRect().height];
  });
  await page.waitForFunction(() => Math.abs(document.querySelector('iframe').getBoundingClientRect().height - document.querySelector('iframe').contentDocument.documentElement.getBoundingClientRect().height) < 3);
  const [bar] = await heights();
  assert.ok(bar > 400, `${bar}`);
  const change = await page.evaluate(() => new Promise((done) => {
    const frame = document.querySelector('iframe');
    frame.addEventListener('memory-ledger-change', ({ detail }) => done(detail), { once: true });
    frame.contentWindow.postMessage({ memoryLedger: 1, type: 'set', hash: '#model=llama-3-8b&method=qlora&view=verdict' }, '*');
  }));
  assert.match(change.hash, /method=qlora/);
  await frame.locator('ml-verdict').waitFor();
  await page.waitForFunction((bar) => document.querySelector('iframe').getBoundingClientRect().height < bar, bar);
}));

test('the page gives a line that shows the same elsewhere', async () => {
  const { page, context, faults } = await openPage(browser, `${origin}/ledger/#v=1&model=tinyllama-1.1b&method=lora&rank=8&seq=1024&show=bytes`);
  const snippet = await page.locator('ml-share pre.embed').innerText();
  const peak = await page.locator('ml-figures .value').nth(1).innerText();
  await context.close();
  assert.deepEqual(faults, []);
  await host(document(snippet.replace(/<script.*<\/script>/, '')), async (other) => {
    await embed(other).locator('ml-verdict').waitFor();
    const { peaks } = await report(other);
    assert.equal(`${peaks.allocated_bytes.toLocaleString('en')} B`, peak);
  });
});
