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
