// What would help, what fits, scenarios side by side, and what can be taken along.

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';
import { loadLedger, preset, shared, verdict, withPage as sharedPage } from './support.mjs';

const open = shared();

const withPage = (hash, run, options) => sharedPage(open, hash, run, { timeout: 45_000, ...options });

const settled = (page) => page.locator('ml-advice [aria-busy=false]').waitFor();
const TIGHT = '#v=1&model=tinyllama-1.1b&batch=8&gpu=rtx3060-12gb';

test('every change that is offered does what it says, and is undone by one click', () => withPage(TIGHT, async (page) => {
  await settled(page);
  const before = await verdict(page);
  const rows = page.locator('ml-advice tbody tr');
  const ids = await rows.evaluateAll((all) => all.map((row) => row.dataset.id));
  assert.ok(ids.includes('checkpointing_full') && ids.includes('micro_batch_1') && ids.includes('optimizer_8bit'), ids.join());
  for (const id of ids.slice(0, 4)) {
    const row = page.locator(`ml-advice tr[data-id=${id}]`);
    const promised = await row.locator('.peak').innerText();
    assert.match(await row.locator('.cost').innerText(), /\w+\./);
    await row.getByRole('button').click();
    await page.locator('ml-figures').getByText(promised).first().waitFor();
    assert.notEqual(page.url(), open.site.url + TIGHT);
    await page.locator('ml-advice').getByRole('button', { name: /^Undo/ }).click();
    await page.locator('ml-verdict h2').getByText(before).waitFor();
    assert.equal(page.url(), open.site.url + TIGHT);
    await settled(page);
  }
}));

test('what fits is solved: the number fits, the next does not', () => withPage(TIGHT, async (page) => {
  await settled(page);
  const ledger = await loadLedger();
  const answerAt = (recipe) => JSON.parse(ledger.predict(JSON.stringify({ config: preset('tinyllama-1.1b'), recipe }))).report.verdict.answer;
  const value = async (place) => Number((await page.locator('ml-advice .most li').nth(place).locator('.value').innerText()).replaceAll(',', ''));
  const [batch, seq] = [await value(0), await value(1)];
  assert.equal(answerAt({ gpu: 'rtx3060-12gb', batch }), 'fits');
  assert.notEqual(answerAt({ gpu: 'rtx3060-12gb', batch: batch + 1 }), 'fits');
  assert.equal(answerAt({ gpu: 'rtx3060-12gb', batch: 8, seq }), 'fits');
  assert.notEqual(answerAt({ gpu: 'rtx3060-12gb', batch: 8, seq: seq + 1 }), 'fits');
  await page.getByRole('button', { name: `Use ${batch}`, exact: true }).click();
  assert.equal(await page.locator('#batch').inputValue(), String(batch));
  assert.match(await verdict(page), /It fits/);
}));

test('it is computed off the main thread: no task of the page is long while it works', () => withPage('#v=1&model=llama-3-8b&batch=4', async (page) => {
  await settled(page);
  await page.evaluate(() => {
    globalThis.tasks = [];
    new PerformanceObserver((list) => globalThis.tasks.push(...list.getEntries().map((entry) => entry.duration))).observe({ type: 'longtask' });
  });
  await page.locator('#batch').fill('5');
  await page.locator('ml-advice [aria-busy=true]').waitFor();
  await settled(page);
  const workers = page.workers().map((worker) => new URL(worker.url()).pathname);
  assert.deepEqual(workers, ['/worker.js']);
  const longest = await page.evaluate(() => Math.max(0, ...globalThis.tasks));
  assert.ok(longest < 1000, `${longest} ms`); // the whole of the advice takes longer than that on one core
}));

test('where there are no workers it is computed all the same', async () => {
  const context = await open.browser.newContext({ locale: 'en-GB' });
  const page = await context.newPage();
  await page.addInitScript(() => { delete globalThis.Worker; });
  await page.goto(`${open.site.url}${TIGHT}`);
  await page.locator('ml-advice tr[data-id=checkpointing_full]').waitFor();
  await context.close();
});

test('the course’s table is one click, each row its own recipe, and lives in the link', () => withPage('#v=1&model=llama-3-8b', async (page, context) => {
  await page.getByRole('button', { name: 'Full / LoRA / QLoRA' }).click();
  const table = page.locator('ml-compare table');
  const row = (name) => table.locator('tr').filter({ hasText: name }).first().innerText();
  assert.match(await row('Method'), /full\s+lora\s+qlora\s+full/);
  const allocated = (await row('Allocated')).match(/[\d.]+ GiB/g).map(parseFloat);
  assert.ok(allocated[0] > allocated[1] && allocated[1] > allocated[2] && allocated[0] === allocated[3], allocated.join());
  assert.equal(await table.locator('tr').filter({ hasText: 'Method' }).locator('.differs').count(), 2);
  const again = await context.newPage();
  await again.goto(page.url());
  await again.locator('ml-compare table').getByText('qlora').first().waitFor();
  await table.getByRole('button', { name: 'Open C' }).click();
  assert.equal(await page.locator('#method').inputValue(), 'qlora');
  await table.getByRole('button', { name: 'Remove B' }).click();
  assert.equal(await table.locator('thead th').count(), 3);
  await page.getByRole('button', { name: 'Remove all pins' }).click();
  await table.waitFor({ state: 'detached' });
  assert.doesNotMatch(page.url(), /pin=/);
}));

test('four can be pinned, by keyboard too', () => withPage('#v=1&model=tinyllama-1.1b', async (page) => {
  for (const batch of ['1', '2', '3', '4']) {
    await page.locator('#batch').fill(batch);
    await page.getByRole('button', { name: 'Pin what is shown' }).focus();
    await page.keyboard.press('Enter');
  }
  assert.equal(await page.locator('ml-compare thead th').count(), 5);
  assert.equal(await page.getByRole('button', { name: 'Four are pinned, the most' }).isDisabled(), true);
}));

test('back and forward undo and redo, one step for a number typed', () => withPage('#v=1&model=tinyllama-1.1b', async (page) => {
  await page.locator('#seq').click();
  await page.locator('#seq').press('Control+a');
  await page.keyboard.type('1536');
  await page.locator('#method').selectOption('lora');
  await page.goBack();
  assert.equal(await page.locator('#method').inputValue(), 'full');
  assert.equal(await page.locator('#seq').inputValue(), '1536');
  await page.goBack();
  await page.waitForFunction(() => !location.hash.includes('seq'));
  assert.equal(await page.locator('#seq').inputValue(), '2048');
  await page.goForward();
  await page.goForward();
  await page.waitForFunction(() => location.hash.includes('lora'));
  assert.equal(await page.locator('#method').inputValue(), 'lora');
}));

// Without its sign.
const headline = async (page) => (await verdict(page)).replace(/^\W+/, '').trim();

async function downloaded(page, name) {
  const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name, exact: true }).click()]);
  return { name: download.suggestedFilename(), bytes: await readFile(await download.path()) };
}

test('everything that can be taken along says what the page says', () => withPage('#v=1&model=tinyllama-1.1b', async (page, context) => {
  await context.grantPermissions(['clipboard-read', 'clipboard-write']);
  const report = JSON.parse((await downloaded(page, 'Report as JSON')).bytes);
  const csv = await downloaded(page, 'Ledger as CSV');
  assert.equal(csv.name, 'ledger.csv');
  const bytes = csv.bytes.toString().trimEnd().split('\r\n').slice(1).map((line) => Number(line.split(',').at(-1)));
  assert.equal(bytes.reduce((all, one) => all + one, 0), report.at_peak.tensor_bytes + report.at_peak.workspace_bytes);

  const svg = (await downloaded(page, 'Charts as SVG')).bytes.toString();
  const drawn = await page.evaluate((text) => {
    const root = new DOMParser().parseFromString(text, 'image/svg+xml').documentElement;
    return { name: root.nodeName, charts: root.querySelectorAll('svg').length, fills: new Set([...root.querySelectorAll('path[fill]')].map((path) => path.getAttribute('fill'))).size, classes: root.querySelectorAll('[class]').length };
  }, svg);
  assert.deepEqual([drawn.name, drawn.charts, drawn.classes], ['svg', 2, 0]);
  assert.ok(drawn.fills >= 4 && svg.includes(await headline(page)), JSON.stringify(drawn));

  const png = await downloaded(page, 'Charts as PNG');
  assert.deepEqual([...png.bytes.subarray(0, 4)], [0x89, 0x50, 0x4e, 0x47]);
  assert.ok(png.bytes.readUInt32BE(16) > 1200, 'twice the size on the page');

  await page.getByRole('button', { name: 'Copy a summary (Markdown)' }).click();
  await page.locator('ml-share').getByText('Copied.').waitFor();
  const markdown = await page.evaluate(() => navigator.clipboard.readText());
  for (const part of [await headline(page), report.peaks.allocated_bytes.toLocaleString('en'), page.url(), 'probe --model tinyllama-1.1b']) assert.ok(markdown.includes(part), part);
}));

test('units are GiB, GB or bytes', () => withPage('#v=1&model=tinyllama-1.1b', async (page) => {
  const gib = parseFloat((await verdict(page)).match(/[\d.]+/)[0]);
  await page.getByRole('button', { name: 'GB', exact: true }).click();
  await page.locator('ml-verdict h2').getByText(/ GB /).waitFor();
  const gb = parseFloat((await verdict(page)).match(/[\d.]+/)[0]);
  assert.ok(Math.abs(gb * 1e9 - gib * 2 ** 30) < 0.02 * 2 ** 30, `${gb} GB, ${gib} GiB`);
  assert.match(page.url(), /show=gb/);
  assert.doesNotMatch(await page.locator('ml-figures').innerText(), /GiB/);
}));

test('a field says what it does, with a link to its documentation', () => withPage('#v=1', async (page) => {
  await page.locator('#checkpointing').focus();
  const help = page.locator('ml-recipe-form #help');
  await help.getByText('compute the rest again').waitFor();
  assert.match(await help.locator('a').getAttribute('href'), /^https:\/\/docs\.pytorch\.org\//);
  const place = await page.locator('#batch').boundingBox();
  await page.locator('#attention').focus();
  await help.getByText('Which kernel').waitFor();
  assert.deepEqual(await page.locator('#batch').boundingBox(), place);
}));

test('a card’s capacity names where it was seen', () => withPage('#v=1&model=llama-3-8b', async (page) => {
  await page.locator('#gpu').focus();
  await page.locator('ml-recipe-form #help').getByText('trl#3172').waitFor();
}));

test('a model named as on the hub is fetched there, and only then', () => withPage('#v=1', async (page) => {
  const asked = [];
  await page.route('https://huggingface.co/**', (route) => {
    asked.push(route.request().url());
    return route.fulfill({ json: JSON.parse(preset('qwen2.5-7b')), headers: { 'Access-Control-Allow-Origin': '*' } });
  });
  await page.locator('#paste').fill('Qwen/Qwen2.5-7B');
  assert.deepEqual(asked, []);
  await page.locator('#paste').press('Enter');
  await page.locator('ml-model-box .message').getByText('Read as a model configuration').waitFor();
  assert.deepEqual(asked, ['https://huggingface.co/Qwen/Qwen2.5-7B/resolve/main/config.json']);
}));

test('a model that the hub does not give is said in words', () => withPage('#v=1', async (page) => {
  await page.route('https://huggingface.co/**', (route) => route.fulfill({ status: 401, body: '', headers: { 'Access-Control-Allow-Origin': '*' } }));
  await page.locator('#paste').fill('meta-llama/Llama-3.1-8B');
  await page.locator('#paste').press('Enter');
  await page.locator('ml-model-box ml-problem').getByText(/did not give config\.json of meta-llama\/Llama-3\.1-8B \(401\)/).waitFor();
}).catch((error) => {
  if (!/401/.test(String(error.actual))) throw error; // the browser notes the refused request itself
}));

test('Enter while a word is being composed hands nothing over', () => withPage('#v=1', async (page) => {
  const box = page.locator('#paste');
  await box.fill('模型');
  await box.evaluate((field) => field.dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', isComposing: true, bubbles: true })));
  assert.equal(await box.inputValue(), '模型');
}));
