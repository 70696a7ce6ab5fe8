// figures.ts - <ml-figures>: the four numbers people confuse, each with the tool that shows it.

import { css, html, type TemplateResult } from 'lit';
import { customElement, property } from 'lit/decorators.js';
import type { Peaks } from '../core/types.js';
import { base } from '../styles/shared.js';
import { LedgerElement } from './base.js';

@customElement('ml-figures')
export class Figures extends LedgerElement {
  static override styles = [base, css`
    dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: 1rem 1.5rem; margin: 0; }
    div { border-top: 1px solid var(--rule-strong); padding-top: 0.5rem; }
    dt { font-size: 0.85rem; color: var(--ink-soft); }
    dd { margin: 0; }
    .value { font: 500 1.35rem/1.3 var(--sans); font-variant-numeric: tabular-nums; letter-spacing: -0.01em; }
    .is { display: block; font-size: 0.8rem; line-height: 1.4; color: var(--ink-soft); }
    :host([exact]) .value { font-size: 1.02rem; line-height: 1.72; }
  `];

  @property({ attribute: false }) peaks!: Peaks;

  protected override render(): TemplateResult {
    const { peaks, i18n } = this;
    this.toggleAttribute('exact', i18n.format.units === 'bytes');
    return html`<h2 class="visually-hidden">${i18n.t('figures.heading')}</h2>
      <dl>
        ${this.figure('figures.tensor', peaks.tensor_bytes, html`${i18n.t('figures.tensor.is')}`)}
        ${this.figure('figures.allocated', peaks.allocated_bytes, html`<code>${i18n.t('figures.allocated.is')}</code>`)}
        ${this.figure('figures.reserved', peaks.reserved_bytes, html`<code>${i18n.t('figures.reserved.is')}</code>`)}
        ${peaks.device_bytes === null ? '' : this.figure('figures.device', peaks.device_bytes, html`${this.band(peaks)}`)}
      </dl>`;
  }

  private figure(key: 'figures.tensor' | 'figures.allocated' | 'figures.reserved' | 'figures.device', bytes: number, is: TemplateResult): TemplateResult {
    return html`<div>
      <dt>${this.i18n.t(key)}</dt>
      <dd><span class="value" title=${this.i18n.format.exact(bytes)}>${this.i18n.bytes(bytes)}</span><span class="is">${is}</span></dd>
    </div>`;
  }

  private band(peaks: Peaks): string {
    const [low, high] = peaks.device_band_bytes ?? [0, 0];
    if (low === high) return this.i18n.t('figures.device.point');
    return this.i18n.t('figures.device.is', { band: this.i18n.format.range(low, high) });
  }
}
