// Many GPUs on the page: the stages of a pipeline as the report has them, in both languages.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { axe, loadLedger, preset, shared, withPage } from './support.mjs';

const open = shared();
const RECIPE = { stack: 'megatron', precision: 'megatron-bf16', loss: 'vocab_parallel', pp: 4, tp: 2, dp: 8, zero: 1, seq: 4096, micro_batches: 16 };
const hash = (lang) => `#v=1&lang=${lang}&model=llama-3-8b&${new URLSearchParams(RECIPE)}`;

test('each stage of a pipeline has its row; the one that needs most is named', async () => {
  const ledger = await loadLedger();
  const { report } = JSON.parse(ledger.predict(JSON.stringify({ config: preset('llama-3-8b'), recipe: RECIPE })));
  await withPage(open, hash('en'), async (page) => {
    const view = page.locator('ml-stages');
    await view.waitFor();
    const rows = await view.locator('tbody tr').all();
    assert.equal(rows.length, report.pipeline.stages.length);
    for (const [at, row] of rows.entries()) {
      const titles = await row.locator('td[title]').evaluateAll((cells) => cells.map((cell) => cell.title.replace(/\D/g, '')));
      const { tensor_bytes: tensors, allocated_bytes: allocated } = report.pipeline.stages[at];
      assert.deepEqual(titles, [String(tensors), String(allocated)]);
      assert.equal((await row.innerText()).includes('needs most'), at === report.pipeline.stage);
    }
    assert.deepEqual(await axe(page), []);
  });
});

test('in Chinese; and with one stage there is none of it', async () => {
  await withPage(open, hash('zh'), async (page) => {
    await page.locator('ml-stages').getByText('流水线各阶段').waitFor();
  });
  await withPage(open, '#v=1&lang=zh&model=llama-3-8b', async (page) => {
    await page.locator('ml-timeline').waitFor();
    assert.equal(await page.locator('ml-stages').count(), 0);
  });
});

test('plans are searched when asked for, listed quickest first, and one becomes the recipe', () => withPage(open, '#v=1&lang=en&model=llama-3.1-405b&seq=8192', async (page) => {
  const view = page.locator('ml-plans');
  await view.waitFor();
  await view.locator('#with').selectOption('megatron');
  await view.locator('#gpus').fill('16384');
  await view.locator('#global_batch').fill('2048');
  const started = Date.now();
  await view.getByRole('button', { name: 'Search' }).click();
  await view.locator('tbody tr').first().waitFor({ timeout: 30_000 });
  console.log(`plans for 405B on 16 384 GPUs: ${Date.now() - started} ms`);
  const seconds = await view.locator('tbody tr td:nth-child(4)').allInnerTexts();
  const lows = seconds.map((text) => Number.parseFloat(text));
  assert.ok(lows.length >= 2 && lows.every((low, at) => at === 0 || low >= lows[at - 1]), seconds.join());
  assert.match(await view.locator('tbody').innerText(), /tensor 8, pipeline/);
  assert.deepEqual(await axe(page), []);
  await view.getByRole('button', { name: /^Apply/ }).first().click();
  await page.locator('ml-stages').waitFor();
  assert.match(page.url(), /stack=megatron/);
}));

test('what cannot be searched says why, and fields take whole numbers only', () => withPage(open, '#v=1&lang=zh&model=gemma-2-9b', async (page) => {
  const view = page.locator('ml-plans');
  await view.locator('#with').selectOption('megatron');
  await view.locator('#gpus').fill('many');
  assert.equal(await view.locator('#gpus').getAttribute('aria-invalid'), 'true');
  await view.getByRole('button', { name: '搜索' }).click();
  assert.equal(await view.locator('ml-problem').count(), 0);
  await view.locator('#gpus').fill('8');
  await view.getByRole('button', { name: '搜索' }).click();
  await view.locator('ml-problem .note').waitFor();
}));

test('with Hugging Face: who shards what, in both languages; what is refused has its reason', async () => {
  await withPage(open, '#v=1&lang=en&model=llama-3.1-8b&seq=4096&attention=flash', async (page) => {
    const view = page.locator('ml-plans');
    await view.locator('#global_batch').fill('32');
    await view.getByRole('button', { name: 'Search' }).click();
    await view.locator('tbody tr').first().waitFor({ timeout: 60_000 });
    assert.match(await view.locator('tbody').innerText(), /FSDP2|ZeRO-[123]/);
    assert.deepEqual(await axe(page), []);
    await view.getByRole('button', { name: /^Apply/ }).first().click();
    await page.waitForURL(/dp=8/);
    assert.doesNotMatch(page.url(), /stack=megatron/);
    assert.ok(await view.locator('tbody tr').count() > 0, 'what was found stays');
  });
  await withPage(open, '#v=1&lang=zh&model=llama-3.2-1b&seq=1024&optimizer=lion', async (page) => {
    const view = page.locator('ml-plans');
    await view.getByRole('button', { name: '搜索' }).click();
    await view.locator('ml-problem .note').first().waitFor({ timeout: 60_000 });
    assert.match(await view.locator('tbody').innerText(), /DDP/);
  });
});

test('on how many cards: full fine-tuning, LoRA and QLoRA side by side, each with its plan', () => withPage(open, '#v=1&lang=en&model=llama-3.1-8b&seq=2048&precision=amp-bf16', async (page) => {
  const view = page.locator('ml-plans');
  await view.locator('#global_batch').fill('16');
  await view.getByRole('button', { name: 'On how many cards?' }).click();
  await view.locator('tbody tr').nth(3).waitFor({ timeout: 120_000 });
  const all = await view.locator('tbody tr').allInnerTexts();
  const offloaded = all.filter((row) => row.includes('of host memory for each GPU'));
  assert.deepEqual(offloaded.map((row) => row.split(':')[0]), ['full fine-tuning'], 'on fewer cards; adapters need one without');
  assert.match(offloaded[0], /optimizer in host memory[^]*over [\d.]+ s/);
  const rows = all.filter((row) => !offloaded.includes(row));
  assert.deepEqual(rows.map((row) => row.split(':')[0]), ['full fine-tuning', 'LoRA', 'QLoRA']);
  const cards = rows.map((row) => Number(/(\d+) GPUs|one GPU/.exec(row)[1] ?? 1));
  assert.ok(cards[0] > cards[1] && cards[1] >= cards[2], cards.join());
  await view.getByRole('button', { name: /^Apply: QLoRA/ }).click();
  await page.waitForURL(/method=qlora/);
}));
