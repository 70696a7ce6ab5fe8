// verdict_view.ts - <ml-verdict>: the answer in words, and which part is the problem.

import { css, html, nothing, type TemplateResult } from 'lit';
import { customElement, property } from 'lit/decorators.js';
import type { Answer, Report, Verdict } from '../core/types.js';
import { questionText } from '../format/question.js';
import { sureText } from '../format/sure.js';
import type { I18n, Key } from '../i18n/i18n.js';
import { base } from '../styles/shared.js';
import { LedgerElement } from './base.js';

// Colour is never alone: each answer has a sign of its own.
const SIGN: Readonly<Record<Answer, string>> = { fits: '✓', tight: '!', does_not_fit: '✕' };

@customElement('ml-verdict')
export class VerdictView extends LedgerElement {
  static override styles = [base, css`
    .run { margin: 0 0 0.5rem; color: var(--ink-soft); }
    h2 { font: 400 clamp(1.75rem, 1.1rem + 2.6vw, 2.9rem)/1.15 var(--serif); letter-spacing: -0.015em; margin: 0 0 0.9rem; text-wrap: balance; }
    :host(:lang(zh)) h2 { letter-spacing: 0; }
    .sign { display: inline-grid; place-items: center; width: 1.15em; height: 1.15em; border-radius: 50%; font: 600 0.5em/1 var(--sans);
      margin-inline-end: 0.6em; vertical-align: 0.22em; color: var(--paper); background: var(--tone); }
    .fits { --tone: var(--good); } .tight { --tone: var(--warn); } .does_not_fit { --tone: var(--bad); }
    h2 .number { color: var(--tone); }
    .why { max-width: 46rem; margin: 0; }
    .why + .why { margin-top: 0.4rem; }
    code { overflow-wrap: anywhere; }
  `];

  @property({ attribute: false }) report!: Report;
  @property({ attribute: false }) modelName = '';

  protected override render(): TemplateResult {
    const { verdict, peaks, at_peak } = this.report;
    const { i18n } = this;
    const bytes = at_peak.categories[verdict.largest_category] ?? 0;
    const share = i18n.format.percent(bytes, at_peak.tensor_bytes + at_peak.workspace_bytes);
    const why = i18n.t('verdict.why', {
      phase: i18n.phase(peaks.phase), op: peaks.op, category: this.categoryText(), bytes: i18n.bytes(bytes), share,
    });
    const sure = sureText(this.report, i18n);
    return html`<div class=${verdict.answer}>
      ${this.fixed ? html`<p class="run">${runText(this.report, this.modelName, i18n)}</p>` : nothing}
      <h2><span class="sign" aria-hidden="true">${SIGN[verdict.answer]}</span>${this.sentence()}</h2>
      ${this.outOfMemory()}
      <p class="why">${why}${i18n.lang === 'zh' ? '' : ' '}${this.largestLine()}</p>
      <p class="why small soft">${i18n.t('verdict.usable', { usable: i18n.bytes(verdict.usable_bytes), capacity: i18n.bytes(verdict.capacity_bytes) })}</p>
      ${sure ? html`<p class="why small soft sure">${sure}</p>` : nothing}
    </div>`;
  }

  private sentence(): TemplateResult {
    const bytes = this.i18n.bytes(Math.abs(this.report.verdict.headroom_bytes));
    const text = this.i18n.t(headlineKey(this.report.verdict), { headroom: '\0', short: '\0', free: '\0' });
    const [before, after] = text.split('\0');
    return html`${before}<span class="number">${bytes}</span>${after}`;
  }

  // Within a sentence.
  private categoryText(): string {
    return this.i18n.category(this.report.verdict.largest_category).toLowerCase();
  }

  private outOfMemory(): TemplateResult | typeof nothing {
    const oom = this.report.verdict.out_of_memory;
    if (!oom) return nothing;
    const { i18n } = this;
    const place = oom.layer < 0 ? '' : i18n.t('verdict.oom.layer', { layer: oom.layer });
    return html`<p class="why">${i18n.t('verdict.oom', { phase: i18n.phase(oom.phase), op: oom.op, bytes: i18n.bytes(oom.bytes), place })}</p>`;
  }

  private largestLine(): TemplateResult {
    const line = this.report.at_peak.tensors.find((row) => row.name === this.report.verdict.largest_line) ?? this.report.at_peak.tensors[0];
    if (!line) return html``;
    const text = this.i18n.t('verdict.line', { line: '\0', bytes: this.i18n.bytes(line.bytes) });
    const [before, after] = text.split('\0');
    return html`${before}<code>${line.name || line.op}</code>${after}`;
  }
}

// The question as a sentence.
export function runText(report: Report, modelName: string, i18n: I18n): string {
  const { recipe, model, verdict } = report;
  return questionText({ recipe, plain: model.family === 'plain', modelName, gpuName: verdict.gpu_name ?? verdict.gpu }, i18n);
}

export function headlineText(verdict: Verdict, i18n: I18n): string {
  const bytes = i18n.bytes(Math.abs(verdict.headroom_bytes));
  return i18n.t(headlineKey(verdict), { headroom: bytes, short: bytes, free: bytes });
}

// The answer's sentence; the two borderline cases have their own, since their headroom's sign says the opposite.
export function headlineKey(verdict: Verdict): Key {
  if (verdict.answer === 'does_not_fit' && verdict.headroom_bytes >= 0) return 'verdict.fragmentation';
  if (verdict.answer === 'tight' && verdict.headroom_bytes < 0) return 'verdict.borderline';
  return `verdict.${verdict.answer}`;
}
