// views.ts - each view's element and texts, fetched when an embed asks for it.

import type { Lang } from '../state/request.js';
import type { View } from './attributes.js';

const LOAD: Readonly<Record<View, () => Promise<unknown>>> = {
  verdict: () => import('../components/verdict_view.js'),
  bar: () => import('../components/capacity_bar.js'),
  timeline: () => import('../components/timeline_view.js'),
  ledger: () => import('../components/ledger_view.js'),
  compare: () => import('../components/compare_view.js'),
};

export function loadView(view: View): Promise<unknown> {
  return LOAD[view]();
}

// The first screen's texts are there already; these three say more.
export async function viewTexts(views: readonly View[], lang: Lang): Promise<Readonly<Record<string, string>>> {
  if (!views.some((view) => view === 'timeline' || view === 'ledger' || view === 'compare')) return {};
  return lang === 'zh' ? (await import('../i18n/below_zh.js')).belowZh : (await import('../i18n/below_en.js')).belowEn;
}
