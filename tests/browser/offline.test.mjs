// Without a network: after a first visit, and as one file.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { readFileSync } from 'node:fs';
import { drop, launch, openPage, openSite, paste, ready, SITE, verdict } from './support.mjs';

let browser;
before(async () => { browser = await launch(); });
after(async () => { await browser?.close(); });

test('after one visit the whole page works without its server, below a sub-path too', async () => {
  const site = await openSite({ base: '/some/where/' });
  const context = await browser.newContext({ locale: 'en-GB' });
  const page = await context.newPage();
  page.setDefaultTimeout(45_000);
  await page.goto(`${site.url}#v=1&model=tinyllama-1.1b`);
  await ready(page);
  await page.evaluate(async () => {
    while (!(await navigator.serviceWorker.getRegistration())?.active) await new Promise((done) => setTimeout(done, 100));
  });
  const before = await verdict(page);
  await site.close();
  const again = await context.newPage();
  again.setDefaultTimeout(45_000);
  await again.goto(`${site.url}#v=1&model=tinyllama-1.1b&lang=zh`);
  await ready(again);
  await again.getByRole('button', { name: 'English' }).click();
  await again.locator('ml-verdict h2').getByText(before).waitFor();
  await again.locator('ml-advice tbody tr').first().waitFor();
  await context.close();
});

test('the page as one file opens from the disk under its own policy, and does everything', async () => {
  const { page, context, faults } = await openPage(browser, `${pathToFileURL(join(SITE, 'memory-ledger.html')).href}#v=1&model=tinyllama-1.1b&batch=4`);
  page.setDefaultTimeout(45_000);
  await ready(page);
  assert.match(await verdict(page), /GiB/);
  await page.locator('ml-advice tbody tr').first().waitFor();
  await page.getByRole('button', { name: '中文' }).click();
  await page.locator('ml-verdict h2').getByText(/放|紧/).waitFor();
  await page.locator('#batch').fill('2');
  assert.match(page.url(), /batch=2/);
  await context.close();
  assert.deepEqual(faults, []);
});

const openSingle = () => openPage(browser, `${pathToFileURL(join(SITE, 'memory-ledger.html')).href}#v=1&model=tinyllama-1.1b`);
const fixture = (name) => readFileSync(new URL(`../fixtures/${name}`, import.meta.url));

test('the one file explains a pasted error', async () => {
  const { page, context, faults } = await openSingle();
  page.setDefaultTimeout(45_000);
  await ready(page);
  await paste(page, 'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.06 GiB is free. Of the allocated memory 60.00 GiB is allocated by PyTorch, and 15.00 GiB is reserved by PyTorch but unallocated.');
  const article = page.locator('ml-oom article');
  assert.match(await article.innerText(), /79\.15 GiB/);
  await page.getByRole('button', { name: '中文' }).click();
  await article.getByText('79.15 GiB').first().waitFor();
  await context.close();
  assert.deepEqual(faults, []);
});

test('the one file reads a memory snapshot, in a thread of its own', async () => {
  const { page, context, faults } = await openSingle();
  page.setDefaultTimeout(45_000);
  const threads = [];
  page.on('worker', (worker) => threads.push(worker.url()));
  await ready(page);
  await drop(page, 'snapshot.json', fixture('snapshots/snapshot.json').toString());
  await page.locator('ml-snapshot table').first().waitFor();
  assert.match(threads.join(), /^blob:/);
  await page.locator('ml-snapshot ml-timeline svg').first().waitFor();
  await context.close();
  assert.deepEqual(faults, []);
});
