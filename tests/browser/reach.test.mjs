// Who can use it, and where: keyboard, screen readers, narrow and dark screens, print, and when WebAssembly is not there.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { axe, drop, openPage, openSite, problemIn, ready, shared, verdict } from './support.mjs';

const open = shared();

async function withPage(hash, options, run) {
  const { page, context } = await openPage(open.browser, open.site.url + hash, options);
  try {
    await ready(page);
    await run(page);
  } finally {
    await context.close();
  }
}

const GROUNDS = ['en', 'zh'].flatMap((lang) => ['light', 'dark'].map((colorScheme) => ({ lang, colorScheme })));
for (const { lang, colorScheme } of GROUNDS) {
  test(`axe finds nothing: ${lang}, ${colorScheme}`, () => withPage(`#v=1&lang=${lang}`, { colorScheme }, async (page) => {
    await page.locator('summary').first().click();
    await page.locator('ml-timeline summary').click();
    await drop(page, 'x.json', '{"batch": 2}');
    assert.deepEqual(await axe(page), []);
    await drop(page, 'x.json', '{oops');
    await page.locator('ml-model-box ml-problem').waitFor();
    assert.deepEqual(await axe(page), []);
    await page.locator('#model input').fill('llama');
    await page.locator('#models [role=option]').nth(5).waitFor();
    assert.deepEqual(await axe(page), []);
  }));
}

for (const hash of ['#v=1', '#v=1&lang=zh&show=bytes', '#v=1&seq=65536&batch=16&show=bytes']) {
  test(`no sideways scrolling at 320 px: ${hash}`, () => withPage(hash, { viewport: { width: 320, height: 640 } }, async (page) => {
    await page.locator('ml-ledger').getByRole('button').first().click();
    const { scroll, wide } = await page.evaluate(() => ({ scroll: document.documentElement.scrollWidth, wide: window.innerWidth }));
    assert.ok(scroll <= wide, `${scroll} > ${wide}`);
  }));
}

test('on a phone the headline is in sight before the answer is, and leads to it', () => withPage('#v=1', { viewport: { width: 375, height: 700 } }, async (page) => {
  const mini = page.locator('.mini');
  await mini.waitFor();
  assert.ok((await mini.innerText()).startsWith((await verdict(page)).replace(/^\S\s*/, '').slice(0, 5)) || (await mini.innerText()).length > 5);
  await mini.click();
  await mini.waitFor({ state: 'hidden' });
}));

test('the keyboard goes through the timeline', () => withPage('#v=1', {}, async (page) => {
  const slider = page.getByRole('slider');
  await slider.focus();
  const value = async () => Number(await slider.getAttribute('aria-valuenow'));
  const peak = await value();
  await page.keyboard.press('ArrowRight');
  assert.equal(await value(), peak + 1);
  await page.keyboard.press('Home');
  assert.equal(await value(), 0);
  assert.match(await slider.getAttribute('aria-valuetext'), /load/);
  await page.keyboard.press('PageDown');
  assert.match(await slider.getAttribute('aria-valuetext'), /forward of step 1/);
  await page.keyboard.press('End');
  assert.equal(await value(), Number(await slider.getAttribute('aria-valuemax')));
  await page.keyboard.press('p');
  assert.equal(await value(), peak);
  assert.match(await page.locator('ml-timeline .readout').innerText(), /Weights/);
}));

test('the pointer moves the cursor, and leaving goes back to the peak', () => withPage('#v=1', {}, async (page) => {
  const chart = page.getByRole('slider');
  const box = await chart.boundingBox();
  const before = await chart.getAttribute('aria-valuenow');
  await chart.hover({ position: { x: box.width * 0.2, y: box.height / 2 } });
  assert.notEqual(await chart.getAttribute('aria-valuenow'), before);
  await page.mouse.move(0, 0);
  await page.locator('ml-timeline').getByText('Alive at the peak').waitFor();
  assert.equal(await chart.getAttribute('aria-valuenow'), before);
}));

test('Tab reaches every control, and focus is seen', () => withPage('#v=1', {}, async (page) => {
  const seen = new Set();
  for (let i = 0; i < 80; ++i) {
    await page.keyboard.press('Tab');
    const { tag, name, outline } = await page.evaluate(() => {
      let element = document.activeElement;
      while (element?.shadowRoot?.activeElement) element = element.shadowRoot.activeElement;
      return { tag: element?.tagName, name: element?.id || element?.textContent?.trim().slice(0, 30) || element?.tagName, outline: element ? getComputedStyle(element).outlineStyle : '' };
    });
    if (tag === 'BODY') break;
    assert.notEqual(outline, 'none', name);
    seen.add(name);
  }
  for (const name of ['Skip to the answer', '中文', 'model-name', 'paste', 'method', 'batch', 'gpu', 'filter']) assert.ok(seen.has(name), `${name} in ${[...seen].join(', ')}`);
}));

test('the ledger opens by keyboard, and filters', () => withPage('#v=1', {}, async (page) => {
  const twist = page.locator('ml-ledger .twist[aria-expanded=false]').first();
  const lines = page.locator('ml-ledger tr.line');
  const before = await lines.count();
  await twist.focus();
  await page.keyboard.press('Enter');
  await page.locator('#filter').fill('mlp');
  assert.ok((await lines.count()) > 0);
  assert.match(await page.locator('ml-ledger tfoot').innerText(), /Shown: \d+ lines/);
  await page.locator('#filter').fill('no such thing');
  assert.match(await page.locator('ml-ledger tfoot').innerText(), /No line matches/);
  await page.locator('#filter').fill('');
  assert.ok((await lines.count()) >= before);
}));

test('print has the answer and no controls', () => withPage('#v=1', {}, async (page) => {
  await page.emulateMedia({ media: 'print' });
  assert.equal(await page.locator('ml-verdict').isVisible(), true);
  assert.equal(await page.getByRole('button', { name: 'Copy link' }).isVisible(), false);
  assert.ok((await page.pdf()).length > 10_000);
}));

const FAILURES = [
  ['there is no WebAssembly', { script: () => { delete globalThis.WebAssembly; } }, /no WebAssembly/],
  ['ledger.wasm is not there', { abort: '**/ledger.wasm' }, /could not be loaded/],
  ['ledger.js is not there', { abort: '**/ledger.js' }, /could not be loaded/],
  ['a policy forbids it', { headers: { 'Content-Security-Policy': "script-src 'self'" } }, /security policy/],
];
for (const [what, { script, abort, headers }, expected] of FAILURES) {
  test(`says so when ${what}`, async () => {
    const place = headers ? await openSite({ headers }) : open.site;
    const context = await open.browser.newContext({ locale: 'en-GB' });
    const page = await context.newPage();
    if (script) await page.addInitScript(script);
    if (abort) await page.route(abort, (route) => route.abort());
    await page.goto(place.url);
    assert.match(await problemIn(page.locator('.failure')), expected);
    await context.close();
    if (headers) await place.close();
  });
}

test('says so when what lies below the first screen cannot be loaded, and the answer stands', async () => {
  const context = await open.browser.newContext({ locale: 'en-GB' });
  const page = await context.newPage();
  await page.route('**/parts/below-*', (route) => route.abort());
  await page.goto(open.site.url);
  await ready(page);
  assert.match(await problemIn(page.locator('#below')), /rest of the page could not be loaded/);
  await page.locator('#batch').fill('2');
  await page.waitForURL(/batch=2/);
  await context.close();
});
