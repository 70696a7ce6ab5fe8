// below.ts - everything below the first screen, in one file of its own: fetched when the reader comes near it, or when
// the page has been at rest for a moment, so that it is there offline and in print.

import { html, type TemplateResult } from 'lit';
import type { I18n } from '../i18n/i18n.js';
import { configText, isPlain, type Lang } from '../state/request.js';
import type { Session } from '../state/session.js';
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

export const SECTIONS = 8;

// In their order; what the answer has no use for is missing. They are drawn one after the other: all at once would hold up a phone.
export function sections(session: Session, i18n: I18n): readonly (false | undefined | (() => TemplateResult))[] {
  const { answer, request, core } = session;
  const report = answer.ok ? answer.value : undefined;
  const plain = isPlain(request.model);
  const config = configText(request.model);
  return [
    report && (() => html`<section><ml-advice .i18n=${i18n} .core=${core} .config=${config} .recipe=${request.recipe} .plain=${plain} .report=${report}></ml-advice></section>`),
    report && !plain && (() => html`<section><ml-plans .i18n=${i18n} .core=${core} .config=${config} .report=${report}></ml-plans></section>`),
    report?.pipeline && (() => html`<section><ml-stages .i18n=${i18n} .report=${report}></ml-stages></section>`),
    report && (() => html`<section><ml-timeline .i18n=${i18n} .report=${report}></ml-timeline></section>`),
    () => html`<section><ml-compare .i18n=${i18n} .core=${core} .request=${request} .defaults=${session.defaults} .answer=${answer}></ml-compare></section>`,
    report && (() => html`<section><ml-ledger .i18n=${i18n} .report=${report}></ml-ledger></section>`),
    () => html`<section id="measured"><h2>${i18n.t('measured.heading')}</h2>
      <ml-share .i18n=${i18n} .request=${request} .report=${report} .hash=${session.hash}></ml-share>
      <ml-measured .i18n=${i18n} .measured=${session.measured}></ml-measured></section>`,
    report && (() => html`<section><ml-limits .i18n=${i18n} .report=${report}></ml-limits></section>`),
  ];
}
