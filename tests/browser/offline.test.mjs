// Without a network: after a first visit, and as one file.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { launch, openPage, openSite, ready, SITE, verdict } from './support.mjs';

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
