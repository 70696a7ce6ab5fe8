// The question above the answer: one sentence whose parts are edited where they stand, by keyboard and by name.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { shared, verdict, withPage as sharedPage } from './support.mjs';

const open = shared();
const withPage = (hash, run, options) => sharedPage(open, hash, run, options);

const sentence = (page) => page.locator('ml-question [role=group]').evaluate((group) => [...group.childNodes].filter((node) => node.nodeType !== Node.COMMENT_NODE).map((node) => node.value ?? node.querySelector?.('[aria-hidden]')?.textContent ?? node.model?.id ?? node.textContent).join('').replace(/\s+/g, ' ').trim());

test('each part is changed in place by keyboard, and the form and the link follow', () => withPage('', async (page) => {
  assert.equal(await sentence(page), 'llama-3-8b, full fine-tuning in bf16, batch 1 × 2048 tokens, on 1 × H100 80GB.');
  const group = page.getByRole('group', { name: 'The question' });
  await group.getByRole('combobox', { name: 'Model' }).focus();
  await page.keyboard.type('tinyllama');
  await page.keyboard.press('Enter');
  await page.waitForURL(/model=tinyllama-1\.1b/);
  await page.keyboard.press('Tab');
  await page.keyboard.press('ArrowDown'); // method
  await page.waitForURL(/method=lora/);
  await page.keyboard.press('Tab');
  await page.keyboard.press('Tab'); // batch
  await page.keyboard.type('8');
  await page.waitForURL(/batch=8/);
  await page.keyboard.press('Tab'); // sequence length, by 512 a step
  await page.keyboard.press('ArrowUp');
  await page.waitForURL(/seq=2560/);
  await page.keyboard.press('Tab');
  await page.keyboard.type('4');
  await page.waitForURL(/dp=4/);
  await page.keyboard.press('Tab');
  await page.keyboard.type('Tesla P40');
  await page.waitForURL(/gpu=p40/i);
  assert.match(await sentence(page), /^tinyllama-1\.1b, LoRA in bf16, batch 8 × 2560 tokens, on 4 × Tesla P40 24GB\.$/);
  for (const [id, value] of [['method', 'lora'], ['batch', '8'], ['seq', '2560'], ['dp', '4']]) assert.equal(await page.locator(`#${id}`).inputValue(), value);
  await page.locator('#batch').fill('3');
  await page.waitForURL(/batch=3/);
  assert.equal(await page.locator('#q-batch').inputValue(), '3', 'and the other way round');
}));

test('a value that the core refuses can be taken back where it was chosen', () => withPage('#v=1&attention=flash', async (page) => {
  const before = await verdict(page);
  await page.locator('#q-precision').selectOption('fp32');
  await page.locator('ml-problem.instead').waitFor();
  assert.equal(await page.locator('#q-precision').inputValue(), 'fp32');
  await page.locator('#q-precision').selectOption('bf16');
  await page.locator('ml-problem.instead').waitFor({ state: 'detached' });
  assert.equal(await verdict(page), before);
}));

test('text that is no number is marked, changes nothing, and is gone with the focus', () => withPage('', async (page) => {
  const [field, url] = [page.locator('#q-batch'), page.url()];
  await field.fill('0');
  assert.equal(await field.getAttribute('aria-invalid'), 'true');
  assert.equal(page.url(), url);
  await field.blur();
  assert.equal(await field.inputValue(), '1');
  assert.equal(await field.getAttribute('aria-invalid'), 'false');
}));

test('GPUs of a plan are counted, and the sentence is one in Chinese, too, as wide as a phone', () => withPage('#v=1&stack=megatron&precision=megatron-bf16&lang=zh&dp=2&tp=4', async (page) => {
  assert.match(await sentence(page), /^llama-3-8b，全参数微调，megatron-bf16，批大小 1 × 2048 个 token，8 张 H100 80GB。$/);
  assert.equal(await page.locator('#q-dp').count(), 0);
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= 320));
}, { viewport: { width: 320, height: 640 } }));
