// sure.ts - how sure a verdict is: what runs of its kind were compared with, in one sentence.

import type { Report } from '../core/types.js';
import type { I18n } from '../i18n/i18n.js';
import { digits } from './format.js';
import { PUBLISHED, TRACES, type Spread } from '../state/evidence.js';

const CUTS = ['dp', 'tp', 'pp', 'cp', 'ep', 'etp'];
// Stacks whose modules the reference runs are of.
const TRACED = ['hf', 'hf-4', 'torchtune'];

const SLIGHT = 0.0001;

export function sureText({ model, recipe }: Report, i18n: I18n): string {
  const stack = String(recipe['stack']);
  if (stack === 'course' || model.family === 'plain') return '';
  const traces = TRACED.includes(stack) && recipe['task'] !== 'generate' ? TRACES[model.family] : undefined;
  const many = CUTS.some((key) => Number(recipe[key] ?? 1) > 1);
  const published = PUBLISHED[`${stack.startsWith('torchtitan') ? 'torchtitan' : stack} ${many ? 'many' : 'one'}`];
  const parts = [
    traces ? i18n.t('sure.traces', { count: i18n.format.count(traces.runs), family: model.family, off: off(traces, i18n) }) : i18n.t('sure.traces.none'),
    published ? i18n.t(many ? 'sure.runs.many' : 'sure.runs', { count: i18n.format.count(published.runs), off: off(published, i18n) }) : i18n.t('sure.runs.none'),
  ];
  return i18n.t('sure', { traces: parts[0] ?? '', runs: parts[1] ?? '' });
}

// "−4.4 % to +6.6 %", or that they are equal.
function off({ low, high }: Spread, i18n: I18n): string {
  if (low === 0 && high === 0) return i18n.t('sure.equal');
  if (Math.max(-low, high) < SLIGHT) return i18n.t('sure.slight');
  return i18n.t('sure.off', { low: signed(low), high: signed(high) });
}

function signed(share: number): string {
  const text = digits(share, 2, 2).replace(/\.?0+$/, '');
  return `${Number(text) > 0 ? '+' : ''}${Number(text) === 0 ? '0' : text}%`;
}
