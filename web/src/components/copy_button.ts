// copy_button.ts - <ml-copy>: copies a text and says so; where the browser forbids it, shows the text to select.

import { css, html, nothing, type TemplateResult } from 'lit';
import { customElement, property, state } from 'lit/decorators.js';
import { base, controls } from '../styles/shared.js';
import { LedgerElement } from './base.js';

const SAID_FOR_MS = 4000;

@customElement('ml-copy')
export class CopyButton extends LedgerElement {
  static override styles = [base, controls, css`
    :host { display: inline-flex; flex-wrap: wrap; gap: 0.5rem; align-items: center; }
    .status { font-size: 0.85rem; color: var(--good); }
    .status:empty { display: none; }
    .fallback { flex-basis: 100%; }
    textarea { font: 0.85rem/1.4 var(--mono); }
  `];

  @property({ attribute: false }) label = '';
  @property({ attribute: false }) text: () => string = () => '';
  @state() private outcome: 'none' | 'copied' | 'refused' = 'none';
  private timer = 0;

  protected override render(): TemplateResult {
    const { i18n } = this;
    return html`<button @click=${this.copy}>${this.label}</button>
      <span class="status" role="status">${this.outcome === 'copied' ? i18n.t('share.copied') : ''}</span>
      ${this.outcome === 'refused'
        ? html`<div class="fallback"><label for="text">${i18n.t('share.not_copied')}</label>
            <textarea id="text" readonly rows="3" .value=${this.text()} @focus=${(event: Event) => (event.target as HTMLTextAreaElement).select()}></textarea></div>`
        : nothing}`;
  }

  private async copy(): Promise<void> {
    try {
      await navigator.clipboard.writeText(this.text());
      this.outcome = 'copied';
    } catch {
      this.outcome = 'refused'; // frames and plain-http pages may not: the text is shown instead
    }
    clearTimeout(this.timer);
    if (this.outcome === 'copied') this.timer = setTimeout(() => { this.outcome = 'none'; }, SAID_FOR_MS);
  }
}
