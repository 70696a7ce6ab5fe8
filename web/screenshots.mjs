// screenshots.mjs - takes the pictures in docs/screenshots/ of the built site: node web/screenshots.mjs [--out DIR]

import { mkdir } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { launch, openPage, openSite, ready } from '../tests/browser/support.mjs';

const { values: flags } = parseArgs({ options: { out: { type: 'string', default: fileURLToPath(new URL('../docs/screenshots', import.meta.url)) } } });

const LARGE = '#v=1&model=llama-3-8b&batch=4';
const COURSE = '#v=1&model=llama-3-8b&gpu=rtx4090-24gb&method=qlora&checkpointing=full&autocast=true&pin=model%3Dllama-3-8b%26gpu%3Drtx4090-24gb&pin=model%3Dllama-3-8b%26gpu%3Drtx4090-24gb%26method%3Dlora%26checkpointing%3Dfull';
const PICTURES = [
  { name: 'desktop', hash: LARGE, options: { viewport: { width: 1280, height: 1000 } } },
  { name: 'phone', hash: LARGE, options: { viewport: { width: 390, height: 844 }, deviceScaleFactor: 2, isMobile: true, hasTouch: true } },
  { name: 'dark', hash: LARGE, options: { viewport: { width: 1280, height: 1000 }, colorScheme: 'dark' }, at: 'ml-advice' },
  { name: 'zh', hash: `${COURSE}&lang=zh`, options: { viewport: { width: 1280, height: 1000 } }, at: 'ml-compare' },
];
const COURSE_PAGE = { name: 'course', path: 'course/#c25', options: { viewport: { width: 1100, height: 1000 } } };

await mkdir(flags.out, { recursive: true });
const [browser, site] = await Promise.all([launch(), openSite()]);
for (const { name, hash, options, at } of PICTURES) {
  const { page, context, faults } = await openPage(browser, site.url + hash, options);
  await ready(page);
  await page.locator('ml-advice [aria-busy=false]').waitFor({ timeout: 60_000 });
  if (at) await page.locator(at).evaluate((element) => element.scrollIntoView({ block: 'start' }));
  await page.screenshot({ path: `${flags.out}/${name}.png` });
  await context.close();
  if (faults.length > 0) throw new Error(`${name}: ${faults.join('; ')}`);
  console.log(`${name}.png`);
}
const { name, path, options } = COURSE_PAGE;
const { page, context } = await openPage(browser, site.url + path, options);
await page.locator('ml-self-test li').last().waitFor({ timeout: 60_000 });
await page.waitForTimeout(500); // charts know their width, and the place is reached
await page.screenshot({ path: `${flags.out}/${name}.png` });
await context.close();
console.log(`${name}.png`);
await browser.close();
await site.close();
