// The course page as a reader meets it: every claim has its figure, figures follow their controls, answers are checked.

import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { axe, openPage, openSite, shared, SITE } from './support.mjs';

const open = shared();

// Claims are drawn one after the other, and figures when their steps are traced.
const whole = (page) => page.locator('ml-course main[aria-busy=false]').waitFor({ timeout: 30_000 });

async function withCourse(hash, run, options = {}) {
  const { page, context, faults } = await openPage(open.browser, `${options.url ?? open.site.url}course/${hash}`, options);
  try {
    await whole(page);
    await run(page);
    assert.deepEqual(faults, []);
  } finally {
    await context.close();
  }
}

const CLAIMS = ['c1', 'c2', 'c5', 'c8', 'c9', 'c12', 'c13', 'c14', 'c15', 'c17', 'c18', 'c20', 'c22', 'c23', 'c24', 'c25'];

for (const lang of ['en', 'zh']) {
  test(`every claim is there, in ${lang}, without a broken figure and without axe’s violations`, () => withCourse(`#lang=${lang}`, async (page) => {
    for (const id of CLAIMS) assert.equal(await page.locator(`article#${id}`).count(), 1, id);
    assert.equal(await page.locator('ml-course [role=alert]').count(), 0);
    const text = await page.locator('ml-course main').evaluate((main) => [...main.querySelectorAll('article')].map((article) => article.innerText).join('\n'));
    assert.doesNotMatch(text, /\bc\d+\.\w|\bpart\.\w|…|NaN|undefined/);
    assert.equal(await page.locator('html').getAttribute('lang'), lang === 'zh' ? 'zh-Hans' : 'en');
    assert.deepEqual(await axe(page), []);
  }));
}

test('the figures say the course’s numbers', () => withCourse('#lang=en', async (page) => {
  const said = (figure) => page.locator(`${figure} .said`).first().innerText();
  assert.match(await said('ml-tensor-figure'), /1,000,000 elements take 4,000,000 B in fp32 and 2,000,000 B in bf16/);
  assert.match(await said('ml-copies-figure'), /2 \+ 2 \+ 4 \+ 4 \+ 4 = 16 B/);
  assert.match(await said('ml-methods-figure'), /8,030,261,248 parameters take 128\.5 GB.*41,943,040 trained parameters take 0\.67 GB beside 16\.1 GB.*16\.7 GB in all.*4\.4 GB, 5\.1 GB in all/s);
  assert.match(await said('ml-inference-figure'), /16\.1 GB; training takes 8 times/);
  assert.match(await said('ml-activations-figure'), /Inputs alone take 1\.0 GiB, everything about 16\.5 GiB/);
  assert.match(await said('ml-scores-figure'), /the linear part grows 8 times, the scores 64 times/);
  assert.match(await said('ml-trade-figure'), /4\/3 of the compute, 33\.3% more/);
  assert.match(await said('ml-ranks-figure'), /16\.7 GB and the activations on each/);
  assert.match(await page.locator('ml-ranks-figure .said').nth(1).innerText(), /128\.5 GB into 8 shares of 16\.1 GB/);
  assert.match(await said('ml-measure-figure'), /33,570,816 parameters.*0\.54 GB/);
  assert.match(await said('ml-update-figure'), /a weight of 1 is still 1 after 1,000 updates of 0\.00001/);
  assert.match(await said('ml-scaling-figure'), /skipped/);
}));

test('bits flip, neighbours step, and a value is kept from format to format', () => withCourse('#c22', async (page) => {
  const lab = page.locator('ml-number-lab');
  const stored = () => lab.locator('.value').innerText();
  assert.equal(await stored(), '1');
  await lab.getByRole('switch', { name: 'Bit 0, Mantissa (precision)' }).click();
  assert.equal(await stored(), '1.0078125');
  await lab.getByRole('button', { name: 'next above' }).click();
  assert.equal(await stored(), '1.015625');
  await lab.getByRole('textbox').fill('70000');
  await lab.getByRole('button', { name: 'fp16' }).click();
  assert.equal(await stored(), '∞');
  await lab.getByRole('button', { name: 'fp8_e4m3' }).click();
  assert.equal(await stored(), 'NaN');
  await lab.getByRole('button', { name: 'fp32' }).click();
  assert.equal(await stored(), '70000');
  await lab.getByRole('textbox').fill('seven');
  assert.equal(await lab.getByRole('textbox').getAttribute('aria-invalid'), 'true');
}));

test('the data path follows the recipe and walks on demand', () => withCourse('#c25', async (page) => {
  const path = page.locator('ml-data-path');
  assert.match(await path.locator('.said').innerText(), /16 B a parameter that stay, and 2 B that pass/);
  await path.locator('select').selectOption('fp32');
  assert.match(await path.locator('.said').innerText(), /16 B a parameter that stay, and 0 B/);
  assert.equal(await path.locator('li').count(), 5, 'no copy of the weights');
  await path.locator('select').selectOption('megatron-bf16');
  assert.match(await path.locator('.said').innerText(), /18 B/);
  await path.getByRole('button', { name: 'Next step' }).click();
  assert.equal(await path.locator('li.now').count(), 1);
}));

test('print keeps the drawings, the recipe they are of, and the numbers', () => withCourse('#c25', async (page) => {
  await page.emulateMedia({ media: 'print' });
  const path = page.locator('ml-data-path');
  assert.ok(await path.locator('svg').isVisible());
  assert.ok(await path.locator('select').isVisible());
  assert.equal(await path.getByRole('button', { name: 'Walk' }).isVisible(), false);
  const figure = page.locator('ml-activations-figure');
  assert.equal(await figure.locator('input').first().isVisible(), false);
  assert.match(await figure.locator('label').first().innerText(), /Batch: 1/);
  assert.equal(await page.locator('ml-course nav').isVisible(), false);
}));

test('an error is named by its moment, and goes away on a larger card', () => withCourse('#c14', async (page) => {
  const figure = page.locator('ml-oom-figure');
  const moments = [['While loading', /in load/], ['In the first step', /in (backward|optimizer) of step 1/], ['When texts grow', /in (forward|backward) of step 1/], ['While generating', /in prefill/]];
  for (const [name, moment] of moments) {
    await figure.getByRole('button', { name }).click();
    await figure.locator('.said').filter({ hasText: moment }).waitFor();
  }
  await figure.getByRole('checkbox').check();
  await figure.locator('.said').filter({ hasText: /this runs/ }).waitFor();
}));

test('the self-test checks numbers against the core’s, and asks others on another round', () => withCourse('#test', async (page) => {
  const question = (i) => page.locator('ml-self-test li').nth(i);
  await question(0).locator('input').fill('1,120 GB');
  await question(0).getByRole('button', { name: 'Check' }).click();
  assert.match(await question(0).locator('[role=status]').innerText(), /Right: 1,120 GB/);
  await question(3).locator('input').fill('8');
  await question(3).getByRole('button', { name: 'Check' }).click();
  assert.match(await question(3).locator('[role=status]').innerText(), /Not yet/);
  await question(3).getByRole('button', { name: 'Show' }).click();
  assert.match(await question(3).locator('[role=status]').innerText(), /64 ×/);
  assert.match(await page.locator('ml-self-test .again').innerText(), /1 of 10 right/);
  await page.getByRole('button', { name: 'Other numbers' }).click();
  assert.match(await question(0).locator('label').innerText(), /34 billion/);
}));

test('a measured peak is reconciled or not', () => withCourse('#c18', async (page) => {
  const figure = page.locator('ml-measure-figure');
  await figure.locator('.measured input').fill('550000000');
  assert.match(await figure.locator('.said').last().innerText(), /^Reconciled/);
  await figure.locator('.measured input').fill('2000000000');
  assert.match(await figure.locator('.said').last().innerText(), /more than 30\.0%/);
}));

test('the language switch keeps the place, and sub-paths work', async () => {
  const deep = await openSite({ base: '/a/b/' });
  await withCourse('#c5', async (page) => {
    await page.getByRole('button', { name: '中文' }).click();
    await page.locator('h1', { hasText: '显存' }).waitFor();
    assert.match(page.url(), /#c5&lang=zh$/);
  }, { url: deep.url });
  await deep.close();
});

for (const [name, options] of Object.entries({ phone: { viewport: { width: 360, height: 740 } }, dark: { colorScheme: 'dark' } })) {
  test(`nothing sticks out, and axe is content: ${name}`, () => withCourse('#lang=en', async (page) => {
    const over = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    assert.ok(over <= 0, `${over} px too wide`);
    assert.deepEqual(await axe(page), []);
  }, options));
}

test('the course as one file opens from the disk', { skip: !existsSync(join(SITE, 'memory-ledger-course.html')) }, async () => {
  const { page, context, faults } = await openPage(open.browser, pathToFileURL(join(SITE, 'memory-ledger-course.html')).href);
  await whole(page);
  assert.match(await page.locator('ml-methods-figure .said').first().innerText(), /128\.5 GB/);
  assert.deepEqual(faults, []);
  await context.close();
});
