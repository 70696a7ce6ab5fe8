// scenarios.ts - <ml-scenarios>: beginnings at one click, the one that is shown marked.

import { css, html, type TemplateResult } from 'lit';
import { customElement, property } from 'lit/decorators.js';
import type { Request } from '../state/request.js';
import { isShown, SCENARIOS } from '../state/scenarios.js';
import { base, controls } from '../styles/shared.js';
import { LedgerElement } from './base.js';

@customElement('ml-scenarios')
export class Scenarios extends LedgerElement {
  static override styles = [base, controls, css`
    nav { display: flex; flex-wrap: wrap; gap: 0.5rem; align-items: center; padding-top: 1.25rem; }
    .label { margin-inline-end: 0.25rem; }
    @media (max-width: 40rem) { .label { flex-basis: 100%; } button { flex: 1 1 40%; } }
    @media print { nav { display: none; } }
  `];

  @property({ attribute: false }) request!: Request;

  protected override render(): TemplateResult {
    const { i18n } = this;
    return html`<nav aria-label=${i18n.t('scenario.heading')}><span class="label small soft">${i18n.t('scenario.heading')}</span>
      ${SCENARIOS.map((scenario) => html`<button aria-pressed=${isShown(scenario, this.request) ? 'true' : 'false'}
        @click=${() => this.ask({ kind: 'scenario', scenario })}>${i18n.t(`scenario.${scenario.id}`)}</button>`)}
    </nav>`;
  }
}
