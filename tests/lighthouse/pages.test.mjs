// What Lighthouse says about the pages whatever else the machine is doing. Its performance score is not of that kind: scripts/lighthouse.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { BAR, complaints, PAGES, withAudits } from './audit.mjs';

const CATEGORIES = ['accessibility', 'best-practices', 'seo'];
const SHIFT = 'cumulative-layout-shift';

test('accessibility, best practices and what search engines need; and nothing jumps', () => withAudits(async (audit) => {
  for (const page of PAGES) {
    const lhr = await audit(page, { onlyCategories: CATEGORIES, onlyAudits: [SHIFT], disableFullPageScreenshot: true });
    const scores = CATEGORIES.map((category) => Math.round(lhr.categories[category].score * 100));
    console.log(`/${page}: ${CATEGORIES.map((category, i) => `${category} ${scores[i]}`).join(', ')}, layout shift ${lhr.audits[SHIFT].numericValue}`);
    CATEGORIES.forEach((category, i) => assert.ok(scores[i] >= BAR, `/${page} ${category} ${scores[i]}: ${complaints(lhr, category).join('; ')}`));
    assert.equal(lhr.audits[SHIFT].numericValue, 0, `/${page}: ${JSON.stringify(lhr.audits['layout-shifts']?.details?.items ?? '')}`);
  }
}));
