// precision_figures.ts - C22 to C24: an update that is swallowed, loss scaling, what autocast computes in which type.

import { html, type TemplateResult } from 'lit';
import { customElement, state } from 'lit/decorators.js';
import type { Line, Report } from '../core/types.js';
import { Figure } from './figure.js';
import { TWO_LAYERS } from './models.js';
import { numberText, power } from './number_text.js';

const UPDATES = [1e-7, 1e-6, 1e-5, 1e-4, 5e-4, 1e-3, 4e-3, 1e-2];

@customElement('ml-update-figure')
export class UpdateFigure extends Figure {
  @state() private weight = 1;
  @state() private change = 1e-5;
  @state() private steps = 1000;

  protected override figure(): TemplateResult {
    const { i18n } = this;
    const { rows, exact } = this.lab.update(this.weight, this.change, this.steps);
    const bf16 = rows.find(({ format }) => format === 'bf16');
    const number = (value: number | null): string => numberText(value === null ? null : Number(value.toPrecision(8)), '∞');
    return html`<div class="controls">
        ${this.slider('c22.weight', [0.01, 0.1, 0.5, 1, 2, 8], this.weight, String, (weight) => (this.weight = weight))}
        ${this.slider('c22.update', UPDATES, this.change, String, (change) => (this.change = change))}
        ${this.slider('c22.steps', [1, 10, 100, 1000, 10000], this.steps, (steps) => i18n.format.count(steps), (steps) => (this.steps = steps))}
      </div>
      <div class="scroll" tabindex="0" role="region" aria-label=${i18n.t('c22.table')}><table><caption class="visually-hidden">${i18n.t('c22.table')}</caption>
        <thead><tr><th scope="col">${i18n.t('c22.format')}</th><th scope="col" class="right">${i18n.t('c22.once')}</th><th scope="col" class="right">${i18n.t('c22.after', { steps: i18n.format.count(this.steps) })}</th><th scope="col" class="right">${i18n.t('c22.half')}</th><th scope="col">${i18n.t('c22.moved')}</th></tr></thead>
        <tbody>${rows.map((row) => html`<tr><th scope="row"><code>${row.format}</code></th><td class="right">${number(row.once)}</td><td class="right">${number(row.after)}</td>
          <td class="right">${power(row.half_ulp)}</td><td class=${row.moved ? 'yes' : 'no'}>${row.moved ? '✓' : '✕'} ${i18n.t(row.moved ? 'c22.yes' : 'c22.no')}</td></tr>`)}</tbody>
      </table></div>
      ${this.said(bf16?.moved ? 'c22.said.moved' : 'c22.said', { weight: String(this.weight), update: String(this.change), steps: i18n.format.count(this.steps), after: number(bf16?.after ?? null), exact: number(exact) })}`;
  }
}

@customElement('ml-scaling-figure')
export class ScalingFigure extends Figure {
  @state() private exponent = 16;

  protected override figure(): TemplateResult {
    const { i18n } = this;
    const scaling = this.lab.scaling([1e-8, 3e-7, 1e-4, 0.02, 0.5, 3], 2 ** this.exponent);
    const number = (value: number | null): string => numberText(value === null ? null : Number(value.toPrecision(5)), '∞');
    const lost = scaling.rows.filter((row) => row.fp16 === 0 && row.gradient !== 0);
    return html`<div class="controls">${this.slider('c23.scale', Array.from({ length: 25 }, (_, i) => i), this.exponent, (exponent) => power(2 ** exponent), (exponent) => (this.exponent = exponent))}</div>
      <div class="scroll" tabindex="0" role="region" aria-label=${i18n.t('c23.table')}><table><caption class="visually-hidden">${i18n.t('c23.table')}</caption>
        <thead><tr><th scope="col" class="right">${i18n.t('c23.gradient')}</th><th scope="col" class="right">bf16</th><th scope="col" class="right">fp16</th><th scope="col" class="right">${i18n.t('c23.scaled')}</th><th scope="col" class="right">${i18n.t('c23.unscaled')}</th></tr></thead>
        <tbody>${scaling.rows.map((row) => html`<tr><th scope="row" class="right">${row.gradient}</th><td class="right">${number(row.bf16)}</td>
          <td class="right ${row.fp16 === 0 ? 'no' : ''}">${number(row.fp16)}</td><td class="right ${row.overflow ? 'no' : ''}">${number(row.scaled)}</td>
          <td class="right ${row.unscaled === 0 || row.overflow ? 'no' : 'yes'}">${row.overflow ? i18n.t('c23.overflow') : number(row.unscaled)}</td></tr>`)}</tbody>
      </table></div>
      ${this.said(scaling.skipped ? 'c23.skipped' : 'c23.said', { lost: lost.length, scale: power(scaling.scale), next: power(scaling.next_scale), rescued: lost.filter((row) => row.unscaled !== 0).length })}`;
  }
}

// What is looked for among the lines of a step, and where it is alive.
const SEEN = [
  { id: 'linear', of: (line: Line) => line.op === 'mm' && line.category === 'activations' },
  { id: 'softmax', of: (line: Line) => /softmax/.test(line.op) && line.category === 'activations' },
  { id: 'weight', of: (line: Line) => line.category === 'weights' },
  { id: 'grad', of: (line: Line) => line.category === 'gradients' },
  { id: 'states', of: (line: Line) => line.category === 'optimizer_states' },
] as const;
const AUTOCASTS = ['amp-bf16', 'amp-fp16', 'fp32', 'bf16'] as const;

@customElement('ml-autocast-figure')
export class AutocastFigure extends Figure {
  @state() private precision: (typeof AUTOCASTS)[number] = 'amp-bf16';

  protected override figure(): TemplateResult {
    const { i18n } = this;
    // Two moments: where activations are the most, and where gradients are.
    const recipe = { precision: this.precision, attention: 'eager' };
    return html`<div class="controls">${this.select('key.precision', AUTOCASTS, this.precision, (value) => i18n.t(`c24.${value}`), (value) => (this.precision = value))}</div>
      ${this.ofSteps([[TWO_LAYERS, { ...recipe, seq: 8192 }], [{ ...TWO_LAYERS, vocab_size: 128256 }, { ...recipe, seq: 512 }]], (forward, backward) => this.table(forward, backward))}
      <p class="note">${i18n.t('c24.note')}</p>`;
  }

  private table(forward: Report | undefined, backward: Report | undefined): TemplateResult {
    const { i18n } = this;
    const lines = [...(forward?.at_peak.tensors ?? []).filter((line) => line.category === 'activations'), ...(backward?.at_peak.tensors ?? []).filter((line) => line.category !== 'activations')];
    const rows = SEEN.map(({ id, of }) => ({ id, found: lines.filter(of) }));
    return html`<div class="scroll" tabindex="0" role="region" aria-label=${i18n.t('c24.table')}><table><caption class="visually-hidden">${i18n.t('c24.table')}</caption>
        <thead><tr><th scope="col">${i18n.t('c24.what')}</th><th scope="col">${i18n.t('c24.dtype')}</th><th scope="col">${i18n.t('c24.example')}</th></tr></thead>
        <tbody>${rows.map(({ id, found }) => html`<tr><th scope="row">${i18n.t(`c24.${id}`)}</th><td><code>${[...new Set(found.map((line) => line.dtype))].join(', ') || '–'}</code></td>
          <td class="soft"><code>${found[0]?.name ?? ''}</code></td></tr>`)}</tbody></table></div>`;
  }
}
