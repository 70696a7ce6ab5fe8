// limits_view.ts - <ml-limits>: what the report says is not in its numbers, and its notes.

import { css, html, nothing, type TemplateResult } from 'lit';
import { customElement, property } from 'lit/decorators.js';
import type { Report } from '../core/types.js';
import { base } from '../styles/shared.js';
import { LedgerElement } from './base.js';

@customElement('ml-limits')
export class LimitsView extends LedgerElement {
  static override styles = [base, css`
    ul { margin: 0 0 0.75rem; padding-inline-start: 1.2rem; font-size: 0.92rem; }
    li { margin-bottom: 0.25rem; overflow-wrap: anywhere; }
  `];

  @property({ attribute: false }) report!: Report;

  protected override render(): TemplateResult {
    const { i18n, report } = this;
    return html`<h2>${i18n.t('limits.heading')}</h2>
      ${report.not_modelled.length === 0
        ? html`<p class="soft">${i18n.t('limits.none')}</p>`
        : html`<ul>${report.not_modelled.map((id) => html`<li>${i18n.maybe(`limit.${id}`, id.replaceAll('_', ' '))}</li>`)}</ul>`}
      ${report.notes.length === 0 ? nothing : html`<h3>${i18n.t('limits.notes')}</h3>
        <ul>${report.notes.map(({ id, detail }) => html`<li>${i18n.maybe(`note.${id}`, id.replaceAll('_', ' '))}${detail ? html` <code>${detail}</code>` : nothing}</li>`)}</ul>`}`;
  }
}
