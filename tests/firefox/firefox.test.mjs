// The page in Firefox (Debian's firefox-esr, over WebDriver BiDi): opens, answers, follows a change, changes its language, all
// under its policy. Skipped where there is no Firefox; FIREFOX names another.
//
// puppeteer-core drives it: playwright-core asks Firefox for BiDi commands that the ESR does not know.

import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { test } from 'node:test';
import { openSite } from '../browser/support.mjs';

const FIREFOX = process.env.FIREFOX ?? '/usr/bin/firefox-esr';
const absent = existsSync(FIREFOX) ? false : `${FIREFOX} is not there; on Debian: apt-get install firefox-esr`;
const LIMIT_MS = 60_000;

// Waits for an element of the page whose text, or value, is as asked; `>>>` sees into shadow roots.
async function until(page, selector, pattern) {
  const handle = await page.waitForSelector(`>>> ${selector}`, { timeout: LIMIT_MS });
  await page.waitForFunction((element, source) => new RegExp(source, 'u').test(element.textContent ?? ''), { timeout: LIMIT_MS }, handle, pattern.source);
  return handle.evaluate((element) => element.textContent);
}

const untilHash = (page, part) => page.waitForFunction((text) => location.hash.includes(text), { timeout: LIMIT_MS }, part);

test('opens, answers, follows a change and changes its language in Firefox', { skip: absent }, async () => {
  const { default: puppeteer } = await import('puppeteer-core');
  const site = await openSite();
  const browser = await puppeteer.launch({ browser: 'firefox', executablePath: FIREFOX, headless: true });
  try {
    const page = await browser.newPage();
    const faults = [];
    page.on('pageerror', (error) => faults.push(`error: ${error.message}`));
    page.on('console', (message) => { if (message.type() === 'error') faults.push(`console: ${message.text()}`); });
    page.on('requestfailed', (request) => faults.push(`failed: ${request.url()}`));
    await page.evaluateOnNewDocument(() => {
      globalThis.violations = [];
      document.addEventListener('securitypolicyviolation', ({ violatedDirective, blockedURI }) => globalThis.violations.push(`${violatedDirective} ${blockedURI}`));
    });
    await page.goto(`${site.url}#lang=en`);
    const first = await until(page, 'ml-verdict >>> h2', /GiB/);

    await (await page.waitForSelector('>>> #batch')).focus();
    await page.keyboard.press('ArrowUp');
    await untilHash(page, 'batch=2');
    assert.notEqual(await until(page, 'ml-verdict >>> h2', /GiB/), first, 'the rest of the core has answered');

    await (await page.waitForSelector('>>> button[lang=zh-Hans]')).click();
    await until(page, 'ml-verdict >>> h2', /\p{Script=Han}/);
    assert.equal(await page.evaluate(() => document.documentElement.lang), 'zh-Hans');
    assert.deepEqual(await page.evaluate(() => globalThis.violations), []);
    assert.deepEqual(faults, []);
  } finally {
    await browser.close();
    await site.close();
  }
});
