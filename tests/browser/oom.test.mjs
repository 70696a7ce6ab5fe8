// Errors pasted and dropped: recognised, explained in both languages, beside the prediction; loaded only when asked for.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { axe, drop, message, paste, shared, withPage as sharedPage } from './support.mjs';

const open = shared();

const withPage = (hash, run) => sharedPage(open, hash, run, { timeout: 45_000 }); // of twelve megabytes, on a busy machine

const error = (requested = '112.00 MiB', free = '25.50 MiB', own = '78.90 GiB', allocated = '78.20 GiB') =>
  `[rank0]:     self.optimizer.step()\n[rank0]:   File "torch/optim/adamw.py", line 1, in _init_group\n[rank0]: torch.OutOfMemoryError: CUDA out of memory. ` +
  `Tried to allocate ${requested}. GPU 0 has a total capacity of 79.00 GiB of which ${free} is free. Including non-PyTorch memory, this process has ${own} ` +
  `memory in use. Of the allocated memory ${allocated} is allocated by PyTorch, and 300.00 MiB is reserved by PyTorch but unallocated.`;

const article = (page) => page.locator('ml-oom article');

test('a pasted error is read, and only then its reader is loaded', () => withPage('#v=1&lang=en', async (page) => {
  const asked = [];
  page.on('request', (request) => asked.push(new URL(request.url()).pathname.split('/').pop()));
  await page.waitForTimeout(300);
  assert.ok(!asked.some((name) => name.startsWith('oom')), asked.join());
  await paste(page, error());
  await message(page).getByText('Read as an out-of-memory error').waitFor();
  await article(page).waitFor();
  assert.ok(asked.includes('oom.wasm') && asked.includes('oom_view.js'), asked.join());
  const text = await article(page).innerText();
  assert.match(text, /Optimizer: states/);
  assert.match(text, /in the optimizer step/);
  assert.match(text, /_init_group/);
  assert.match(text, /78\.20 GiB/);
  assert.deepEqual(await axe(page), []);
}));

test('it stands beside the prediction, which follows the recipe', () => withPage('#v=1&lang=en&model=llama-3-8b&optimizer=adamw_foreach', async (page) => {
  await paste(page, error());
  const first = await article(page).innerText();
  assert.match(first, /Beside the prediction/);
  assert.match(first, /112\.00 MiB/); // 14336 x 4096 x 2: an MLP weight's state
  assert.match(first, /optimizer_states|Optimizer states/);
  await article(page).locator('.saves').first().waitFor(); // the 8-bit optimizer, predicted anew
}));

test('in Chinese', () => withPage('#v=1&lang=zh', async (page) => {
  await paste(page, error());
  await message(page).getByText('识别为显存不足的报错').waitFor();
  const text = await article(page).innerText();
  assert.match(text, /优化器/);
  assert.match(text, /优化器更新时/);
  assert.ok(!/\badvice\.|evidence\.|cause\./.test(text), text);
}));

test('HTML in an error is text, and nothing of it runs', () => withPage('#v=1&lang=en', async (page) => {
  await paste(page, `${error()}\n<img src=x onerror="window.ran=1"><script>window.ran=1</script> optimizer.step()`);
  await article(page).waitFor();
  assert.match(await article(page).innerText(), /<script>/);
  assert.equal(await page.evaluate(() => window.ran), undefined);
  assert.equal(await article(page).locator('script, img').count(), 0);
}));

test('of a large log the end is read', () => withPage('#v=1&lang=en', async (page) => {
  await drop(page, 'train.log', `${'step 1 loss 2.0\n'.repeat(700_000)}${error()}`);
  await article(page).waitFor();
  assert.match(await article(page).innerText(), /train\.log/);
  assert.match(await article(page).innerText(), /Optimizer: states/);
}));

test('the newest error replaces the last, and can be removed', () => withPage('#v=1&lang=en', async (page) => {
  await paste(page, error());
  await article(page).getByText('Optimizer: states').waitFor();
  await paste(page, 'worker 3 exits with return code = -9');
  await article(page).getByText('Host RAM').first().waitFor();
  assert.equal(await article(page).count(), 1);
  await article(page).getByRole('button', { name: 'Remove this error' }).click();
  await article(page).waitFor({ state: 'detached' });
}));
