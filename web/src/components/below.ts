// below.ts - everything below the first screen, in one file of its own: fetched when the reader comes near it, or when
// the page has been at rest for a moment, so that it is there offline and in print.

import type { Lang } from '../state/request.js';
import './advice_view.js';
import './compare_view.js';
import './ledger_view.js';
import './limits_view.js';
import './measured_view.js';
import './plans_view.js';
import './share_view.js';
import './stages_view.js';
import './timeline_view.js';

export { keepOffline } from './offline.js';

export async function loadBelowTexts(lang: Lang): Promise<Readonly<Record<string, string>>> {
  return lang === 'zh' ? (await import('../i18n/below_zh.js')).belowZh : (await import('../i18n/below_en.js')).belowEn;
}
