// performance.mjs - Lighthouse's performance score (mobile), the median of three runs a page: below the bar is a failure.
//
// Lighthouse takes a task's time by the clock and reckons it up fourfold for a phone: on a machine that does anything else
// besides, total blocking time is that other work's too. What the network alone decides is steady.

import { BAR, complaints, PAGES, withAudits } from './audit.mjs';

const RUNS = 3;
const SHOWN = ['first-contentful-paint', 'largest-contentful-paint', 'total-blocking-time', 'cumulative-layout-shift', 'speed-index'];

let below = 0;
await withAudits(async (audit) => {
  for (const page of PAGES) {
    const runs = [];
    for (let run = 0; run < RUNS; ++run) runs.push(await audit(page, { onlyCategories: ['performance'] }));
    const score = (lhr) => Math.round(lhr.categories.performance.score * 100);
    runs.sort((a, b) => score(a) - score(b));
    const median = runs[Math.floor(RUNS / 2)];
    console.log(`/${page}: performance ${score(median)} (of ${runs.map(score).join(', ')}): ${SHOWN.map((id) => `${id} ${median.audits[id].displayValue}`).join(', ')}`);
    if (score(median) >= BAR) continue;
    console.log(`  below ${BAR}: ${complaints(median, 'performance').join('; ')}`);
    below += 1;
  }
});
process.exitCode = below > 0 ? 1 : 0;
