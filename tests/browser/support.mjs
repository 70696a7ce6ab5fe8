// support.mjs - a browser, the built site behind a small server, and what the page's tests keep asking for.
//
// SITE=DIR tests another build than build/site. Elements are found by Playwright's locators, which see into shadow roots.

import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { after, before } from 'node:test';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { createSite, listen } from '../../web/serve.mjs';
import { loadParts } from '../wasm/parts.mjs';

const requireWeb = createRequire(new URL('../../web/package.json', import.meta.url));
const { chromium } = requireWeb('playwright-core');

export const SITE = resolve(process.env.SITE ?? fileURLToPath(new URL('../../build/site', import.meta.url)));
// Chromium's engine without the browser around it, which takes two seconds of processor time for each fresh profile; or all of Chromium.
const CHROMIUM = process.env.CHROMIUM ?? ['/usr/bin/chromium-headless-shell', '/usr/bin/chromium'].find((path) => existsSync(path));
const FLAGS = ['--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu', '--force-color-profile=srgb'];

// headers: sent with every file, e.g. a stricter policy than the page's own.
export async function openSite({ base = '/', headers = {} } = {}) {
  const site = createSite(SITE, base);
  const server = createServer((request, response) => {
    for (const [name, value] of Object.entries(headers)) response.setHeader(name, value);
    site.emit('request', request, response);
  });
  const port = await listen(server, 0, '127.0.0.1');
  const close = () => {
    server.closeAllConnections();
    return new Promise((done) => server.close(done));
  };
  return { url: `http://127.0.0.1:${port}${base}`, close };
}

export function launch(more = []) {
  return chromium.launch({ executablePath: CHROMIUM, args: [...FLAGS, ...more] });
}

// A fresh profile whose page notes policy violations, errors and failed loads.
export async function openPage(browser, url, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, locale: 'en-GB', ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(15_000);
  const faults = [];
  page.on('pageerror', (error) => faults.push(`error: ${error.stack ?? error}`));
  page.on('console', (message) => {
    if (message.type() === 'error') faults.push(`console: ${message.text()}`);
  });
  page.on('requestfailed', (request) => faults.push(`failed: ${request.url()}`));
  await page.exposeFunction('noteViolation', (text) => faults.push(`policy: ${text}`));
  await page.addInitScript(() => {
    document.addEventListener('securitypolicyviolation', (event) => window.noteViolation(`${event.violatedDirective} ${event.blockedURI} ${event.sample}`));
  });
  await page.goto(url);
  return { page, context, faults };
}

// The browser and the site that a file's tests share: there from the first test on, gone after the last.
export function shared() {
  const open = {};
  before(async () => {
    [open.browser, open.site] = await Promise.all([launch(), openSite()]);
  });
  after(async () => {
    await open.browser?.close();
    await open.site?.close();
  });
  return open;
}

// Runs on a page of the shared site that has answered, and asks afterwards that nothing went wrong there. Unless asked for, no service
// worker: a fresh profile would fetch and store the whole site for each test (what it does is offline.test.mjs's to ask).
export async function withPage(open, hash, run, { timeout, ...options } = {}) {
  const { page, context, faults } = await openPage(open.browser, open.site.url + hash, { serviceWorkers: 'block', ...options });
  if (timeout !== undefined) page.setDefaultTimeout(timeout);
  try {
    await ready(page);
    await run(page, context);
    assert.deepEqual(faults, []);
  } finally {
    await context.close();
  }
}

export async function ready(page) {
  await page.locator('ml-verdict h2').waitFor();
  await page.locator('main[aria-busy=false]').waitFor();
}

export function verdict(page) {
  return page.locator('ml-verdict h2').innerText();
}

export async function drop(page, name, text) {
  await page.evaluate(({ name, text }) => {
    const dataTransfer = new DataTransfer();
    dataTransfer.items.add(new File([text], name, { type: 'application/json' }));
    document.dispatchEvent(new DragEvent('drop', { dataTransfer, bubbles: true, cancelable: true }));
  }, { name, text });
}

export async function paste(page, text) {
  await page.evaluate((text) => {
    const clipboardData = new DataTransfer();
    clipboardData.setData('text/plain', text);
    document.dispatchEvent(new ClipboardEvent('paste', { clipboardData, bubbles: true }));
  }, text);
}

export const message = (page) => page.locator('ml-model-box .message');

// The text of a problem shown within `place`; innerText does not see into shadow roots, locators do.
export const problemIn = (place) => place.locator('ml-problem .note').first().innerText();

// axe sees into open shadow roots; run through the protocol, so the page's policy stays as it is.
export async function axe(page) {
  await page.evaluate(readFileSync(requireWeb.resolve('axe-core/axe.min.js'), 'utf8'));
  const found = await page.evaluate(() => window.axe.run(document, {
    runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'], resultTypes: ['violations'],
  }));
  return found.violations.map(({ id, help, nodes }) => `${id}: ${help}: ${nodes.map((node) => `${node.target.flat().join(' ')} ${node.failureSummary ?? ''}`).slice(0, 3).join(' | ')}`);
}

// The very module that the page loads, in node.
export async function loadLedger() {
  return loadParts(SITE, ['ledger_first.wasm', 'ledger_rest.wasm']);
}

export function preset(id) {
  return readFileSync(join(SITE, 'presets', `${id}.json`), 'utf8');
}

// Chooses a model by its name in the search field.
export async function pick(page, name) {
  await page.locator('#model input').fill(name);
  await page.locator('#models [role=option]', { has: page.getByText(name, { exact: true }) }).click();
}

// The presets as they stand in the sources, with the number of parameters that their source gives.
export function presets() {
  const dir = fileURLToPath(new URL('../../core/config/checkpoints', import.meta.url));
  return readdirSync(dir).map((name) => JSON.parse(readFileSync(join(dir, name), 'utf8')));
}
