// share_view.ts - <ml-share>: the probe's command line, and the report as a file.

import { css, html, type TemplateResult } from 'lit';
import { customElement, property } from 'lit/decorators.js';
import type { Report } from '../core/types.js';
import { configFileName, probeCommand } from '../state/command.js';
import { configText, type Request } from '../state/request.js';
import { base, controls } from '../styles/shared.js';
import { LedgerElement } from './base.js';
import { download } from './download.js';
import './copy_button.js';

@customElement('ml-share')
export class ShareView extends LedgerElement {
  static override styles = [base, controls, css`
    .command { display: grid; grid-template-columns: 1fr auto; gap: 0.5rem; align-items: start; }
    pre { margin: 0; padding: 0.55rem 0.75rem; min-height: 2.25rem; background: var(--sunk); border-radius: 6px; font: 0.85rem/1.5 var(--mono); white-space: pre-wrap; overflow-wrap: anywhere; }
    .files { display: flex; flex-wrap: wrap; gap: 0.5rem; margin-top: 0.75rem; }
    @media (max-width: 30rem) { .command { grid-template-columns: 1fr; } }
  `];

  @property({ attribute: false }) request!: Request;
  @property({ attribute: false }) report: Report | undefined;

  protected override render(): TemplateResult {
    const { i18n, request, report } = this;
    const command = probeCommand(request);
    const config = configFileName(request);
    return html`<p>${i18n.t('measured.intro')}</p>
      <div class="command"><pre><code>${command}</code></pre><ml-copy .i18n=${i18n} .label=${i18n.t('share.copy')} .text=${() => command}></ml-copy></div>
      <div class="files">
        <button @click=${() => download(config, configText(request.model))}>${config}</button>
        ${report ? html`<button @click=${() => download('report.json', JSON.stringify(report, null, 1))}>${i18n.t('share.json')}</button>` : ''}
      </div>`;
  }
}
