// Measurements over the prediction: dropped files, the sample that lies beside the site, and differences named.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { axe, drop, loadLedger, message, preset, shared, withPage as sharedPage } from './support.mjs';

const open = shared();
let measured;
before(async () => {
  measured = await measurement();
});

// A run that went as predicted, in the format of docs/file-formats.md.
async function measurement() {
  const ledger = await loadLedger();
  const request = { config: preset('course-8x-linear-2048'), recipe: { precision: 'fp32', batch: 32 } };
  const { report } = JSON.parse(ledger.predict(JSON.stringify(request)));
  const { model, recipe, peaks, phases, at_peak, timeline } = report;
  return {
    schema_version: '1.0', kind: 'measured', tool: { name: 'probe', version: '0.0.0', backend: 'host' }, status: 'ok',
    environment: { device: 'host', gpu: null, os: 'linux' }, model, recipe, options: { steps: 2, memory_limit_bytes: null }, peaks, phases, at_peak, timeline, steps: [], error: null,
  };
}

const withPage = (run) => sharedPage(open, '', run);

const dropped = (page) => page.locator('ml-measured article').filter({ hasText: 'measured.json' });

test('a run that went as predicted says so, row by row', () => withPage(async (page) => {
  await drop(page, 'measured.json', JSON.stringify(measured));
  await message(page).getByText('Read as a measurement').waitFor();
  await dropped(page).getByText('agree to the byte').waitFor();
  const text = await dropped(page).innerText();
  assert.match(text, /Allocated peak by phase/);
  assert.match(text, /backward of step 1/);
  assert.match(text, /Allocator rounding/);
  assert.match(text, /Unexplained/);
}));

test('a difference is named, with its share', () => withPage(async (page) => {
  const more = structuredClone(measured);
  const phase = more.phases.find((row) => row.name === 'step2.backward');
  phase.allocated_peak_bytes += 5 * 1024 * 1024;
  await drop(page, 'measured.json', JSON.stringify(more));
  await dropped(page).getByText('Largest difference: backward of step 2, +5.00 MiB').waitFor();
}));

test('what a run had allocated is a line over the predicted areas, and is read out beside them', () => withPage(async (page) => {
  const more = structuredClone(measured);
  const { points, phases } = more.timeline;
  const backward = phases.find((phase) => phase.name === 'step2.backward').event;
  const at = points.findLastIndex((point) => point.event <= backward);
  const predicted = points[at].allocated_bytes;
  points[at].allocated_bytes += 7 * 2 ** 30;
  await drop(page, 'measured.json', JSON.stringify(more));
  const chart = dropped(page).locator('ml-timeline .chart');
  await chart.focus();
  await page.keyboard.press('Home');
  const start = await chart.getAttribute('aria-valuetext');
  assert.match(start, /Allocated: 0 B predicted, 0 B measured\.$/);
  while (!(await chart.getAttribute('aria-valuetext')).includes('backward of step 2')) await page.keyboard.press('PageDown');
  const shown = await chart.getAttribute('aria-valuetext');
  const gib = (bytes) => (bytes / 2 ** 30).toFixed(2);
  assert.match(shown, new RegExp(`${(predicted / 2 ** 20).toFixed(2)} MiB predicted, ${gib(predicted + 7 * 2 ** 30)} GiB measured`));
  // What was measured at this one moment reaches far above all that was predicted, and the axis makes room for it.
  const [line, reserved] = await Promise.all(['path.measured', 'path.reserved'].map((path) => chart.locator(path).evaluate((element) => element.getBBox().y)));
  assert.ok(line < reserved && line >= 0, `${line} ${reserved}`);
  assert.match(await dropped(page).innerText(), /Over time: areas predicted, the line measured/);
  assert.deepEqual(await axe(page), []);
}));

test('a file without a timeline shows its tables alone', () => withPage(async (page) => {
  const { timeline, ...without } = measured;
  await drop(page, 'measured.json', JSON.stringify(without));
  await dropped(page).getByText('agree to the byte').waitFor();
  assert.equal(await dropped(page).locator('ml-timeline').count(), 0);
}));

// Two ranks of one run, the second with more than was predicted for it.
function ofRanks(file) {
  const { allocated_bytes: allocated, tensor_bytes, workspace_bytes, reserved_bytes } = file.peaks;
  const rank = (number, more) => ({ rank: number, peaks: { tensor_bytes, workspace_bytes, allocated_bytes: allocated + more, reserved_bytes }, predicted_allocated_bytes: allocated, events_identical: more === 0 });
  return { ...file, ranks: [rank(0, 0), rank(1, allocated)] };
}

test('each rank of a run lies beside its own prediction, in both languages', () => withPage(async (page) => {
  await drop(page, 'measured.json', JSON.stringify(ofRanks(measured)));
  const ranks = dropped(page).locator('.ranks tbody tr');
  await ranks.nth(1).waitFor();
  assert.match(await ranks.nth(0).innerText(), /rank 0.*none/s);
  const exact = await ranks.nth(1).locator('td[title]').evaluateAll((cells) => cells.map((cell) => Number(cell.title.replace(/\D/g, ''))));
  const { allocated_bytes: allocated } = measured.peaks;
  assert.deepEqual(exact, [allocated, 2 * allocated, allocated]);
  const widths = await ranks.nth(1).locator('rect').evaluateAll((bars) => bars.map((bar) => bar.getAttribute('width')));
  assert.deepEqual(widths, ['50', '100'], 'both on one scale');
  await dropped(page).getByText('Largest difference: rank 1').waitFor();
  assert.deepEqual(await axe(page), []);
  await page.getByRole('button', { name: '中文' }).click();
  await dropped(page).getByText('各 rank 的已分配峰值').waitFor();
}));

test('several measurements lie side by side, and can be removed', () => withPage(async (page) => {
  const named = (name) => page.locator('ml-measured article').filter({ hasText: name });
  await drop(page, 'measured.json', JSON.stringify(measured));
  await drop(page, 'second.json', JSON.stringify(measured));
  await named('second.json').waitFor();
  assert.equal(await named('measured.json').count(), 1);
  await page.getByRole('button', { name: 'Remove second.json' }).click();
  await named('second.json').waitFor({ state: 'detached' });
  assert.equal(await named('measured.json').count(), 1);
}));

test('a sample beside the site is overlaid when the reader comes near', async () => {
  const context = await open.browser.newContext({ locale: 'en-GB' });
  const page = await context.newPage();
  await page.route('**/measured/index.json', (route) => route.fulfill({ json: { samples: ['host.json'] } }));
  await page.route('**/measured/host.json', (route) => route.fulfill({ json: measured }));
  await page.goto(open.site.url);
  await page.getByRole('heading', { name: 'Measured beside predicted' }).scrollIntoViewIfNeeded();
  await page.locator('ml-measured article').getByText('A sample measured on a host').waitFor();
  await context.close();
});
