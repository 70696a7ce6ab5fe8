// What Lighthouse says about the pages, on a phone four times slower than this machine: each category, and that nothing jumps.
//
// Performance is reckoned with the time that the pages' own work had the processor (own_time.mjs), so that other work on the machine adds
// little; the best of some tries is held to the bar. scripts/lighthouse measures it by the clock.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { BAR, complaints, PAGES, withAudits } from './audit.mjs';

const CATEGORIES = ['performance', 'accessibility', 'best-practices', 'seo'];
const SHIFT = 'cumulative-layout-shift';
const BLOCKING = 'total-blocking-time';
const MOST_BLOCKING_MS = 200; // what Lighthouse calls fast
const TRIES = 3;

const score = (lhr, category) => Math.round(lhr.categories[category].score * 100);
const swift = (lhr) => score(lhr, 'performance') >= BAR && lhr.audits[BLOCKING].numericValue <= MOST_BLOCKING_MS;

for (const page of PAGES) {
  test(`/${page}: each category at ${BAR} or above, and nothing jumps`, () => withAudits(async (audit) => {
    let lhr;
    for (let tries = 0; tries < TRIES && !(lhr && swift(lhr)); ++tries) lhr = await audit(page, { onlyCategories: CATEGORIES, disableFullPageScreenshot: true, ownTime: true });
    const blocking = lhr.audits[BLOCKING].numericValue;
    console.log(`/${page}: ${CATEGORIES.map((category) => `${category} ${score(lhr, category)}`).join(', ')}, blocking ${Math.round(blocking)} ms, layout shift ${lhr.audits[SHIFT].numericValue}`);
    for (const category of CATEGORIES) assert.ok(score(lhr, category) >= BAR, `${category} ${score(lhr, category)}: ${complaints(lhr, category).join('; ')}`);
    assert.ok(blocking <= MOST_BLOCKING_MS, `blocked for ${blocking} ms: ${JSON.stringify(lhr.audits['long-tasks']?.details?.items ?? '')}`);
    assert.equal(lhr.audits[SHIFT].numericValue, 0, JSON.stringify(lhr.audits['layout-shifts']?.details?.items ?? ''));
  }));
}
