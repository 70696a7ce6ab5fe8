// measure_figure.ts - C18 and C19: predict, run, read the peak, compare.

import { html, nothing, type TemplateResult } from 'lit';
import { customElement, state } from 'lit/decorators.js';
import { CATEGORIES, type Report } from '../core/types.js';
import './bars.js';
import { Figure } from './figure.js';
import { PLAIN_STACK } from './models.js';

const RECONCILED = 0.3; // the chapter's bar

@customElement('ml-measure-figure')
export class MeasureFigure extends Figure {
  @state() private batch = 4;
  @state() private measured = '';

  protected override figure(): TemplateResult {
    const { i18n } = this;
    return html`<div class="controls">${this.slider('key.batch', [1, 4, 16, 64, 256, 1024, 4096], this.batch, (batch) => i18n.format.count(batch), (batch) => (this.batch = batch))}</div>
      ${this.ofSteps([[PLAIN_STACK, { precision: 'fp32', batch: this.batch }]], (report) => (report ? this.answer(report) : html``))}`;
  }

  private answer(report: Report): TemplateResult {
    const { i18n } = this;
    const { categories } = report.at_peak;
    const states = report.phases.find(({ name }) => name === 'step2.backward')?.end_bytes ?? 0;
    const pieces = CATEGORIES.map((id) => ({ color: id as string, name: i18n.category(id), size: categories[id] ?? 0, text: this.gb(categories[id] ?? 0, 3) }));
    return html`<ml-bars .i18n=${i18n} .label=${i18n.t('c19.title')} .rows=${[{ name: i18n.t('c19.peak'), sum: this.gb(report.peaks.allocated_bytes, 3), pieces }]}></ml-bars>
      ${this.said('c19.said', { params: i18n.format.count(report.model.params), states: this.gb(states, 2), peak: this.gb(report.peaks.allocated_bytes, 3) })}
      <div class="controls measured"><label>${i18n.t('c18.measured')}<input inputmode="decimal" autocomplete="off" .value=${this.measured} @input=${(event: Event) => (this.measured = (event.target as HTMLInputElement).value)} /></label></div>
      ${this.verdict(report.peaks.allocated_bytes)}`;
  }

  private verdict(predicted: number): TemplateResult | typeof nothing {
    const value = Number(this.measured);
    if (this.measured.trim() === '' || !(value > 0)) return nothing;
    const off = Math.abs(predicted - value) / value;
    return this.said(off <= RECONCILED ? 'c18.yes' : 'c18.no', { off: this.i18n.format.percent(off, 1), predicted: this.i18n.format.exact(predicted), bar: this.i18n.format.percent(RECONCILED, 1) });
  }
}
