// How quickly a change is answered, and that nothing on the page jumps.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { openPage, ready, shared } from './support.mjs';

const FRAME_MS = 16;

const open = shared();

// From a keystroke to the new numbers laid out, all the way down the page: script, style and layout of the main thread, in
// time of its own processor, so that other work on the machine adds little. The quickest of some tries is held to the bar.
test('a change is answered within a frame for an 8B model', async () => {
  const { page, context } = await openPage(open.browser, `${open.site.url}#v=1&model=llama-3-8b`);
  await ready(page);
  await page.locator('ml-advice [aria-busy=false]').waitFor({ timeout: 60_000 });
  const devtools = await context.newCDPSession(page);
  await devtools.send('Performance.enable', { timeDomain: 'threadTicks' });
  const spent = async () => {
    const { metrics } = await devtools.send('Performance.getMetrics');
    const of = (name) => metrics.find((metric) => metric.name === name).value * 1000;
    return of('ScriptDuration') + of('LayoutDuration') + of('RecalcStyleDuration');
  };
  const times = [];
  for (let batch = 2; batch < 18; ++batch) {
    const before = await spent();
    await page.evaluate(async (text) => {
      const app = document.querySelector('memory-ledger');
      const field = app.renderRoot.querySelector('ml-recipe-form').renderRoot.querySelector('#batch');
      field.value = text;
      field.dispatchEvent(new InputEvent('input', { bubbles: true, composed: true }));
      await app.updateComplete;
      await Promise.all([...app.renderRoot.querySelectorAll('*')].map((element) => element.updateComplete));
      app.getBoundingClientRect();
    }, String(batch));
    times.push((await spent()) - before);
    await page.waitForTimeout(400);
  }
  await context.close();
  times.sort((a, b) => a - b);
  console.log(`a change is answered in ${times[0].toFixed(1)} ms at best, median ${times[8].toFixed(1)}, worst ${times.at(-1).toFixed(1)}`);
  assert.ok(times[0] <= FRAME_MS, times.map((time) => time.toFixed(1)).join(' '));
});

test('nothing jumps while the page loads, and below the first screen neither', async () => {
  const { page, context } = await openPage(open.browser, 'about:blank');
  await page.addInitScript(() => {
    globalThis.shifts = [];
    new PerformanceObserver((list) => globalThis.shifts.push(...list.getEntries().map((entry) => entry.value))).observe({ type: 'layout-shift', buffered: true });
  });
  await page.goto(`${open.site.url}#v=1&model=llama-3-8b`);
  await ready(page);
  await page.locator('ml-advice [aria-busy=false]').waitFor({ timeout: 60_000 });
  const sum = await page.evaluate(() => globalThis.shifts.reduce((all, one) => all + one, 0));
  await context.close();
  assert.ok(sum <= 0.01, `${sum}`);
});
