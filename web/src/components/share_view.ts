// share_view.ts - <ml-share>: the probe's command line, and everything that can be taken along: Markdown, CSV, JSON, SVG, PNG.

import { css, html, nothing, type TemplateResult } from 'lit';
import { customElement, property, state } from 'lit/decorators.js';
import { SINGLE, SITE } from '../core/site.js';
import type { Report } from '../core/types.js';
import { ledgerCsv, summaryMarkdown } from '../format/exports.js';
import { configFileName, probeCommand } from '../state/command.js';
import { embedSnippet } from '../state/embed.js';
import { configText, type Request } from '../state/request.js';
import { base, controls } from '../styles/shared.js';
import { LedgerElement } from './base.js';
import { download } from './download.js';
import { modelName } from './model_name.js';
import { pictureOf, pngOf } from './picture.js';
import { headlineText, runText } from './verdict_view.js';
import './copy_button.js';

@customElement('ml-share')
export class ShareView extends LedgerElement {
  static override styles = [base, controls, css`
    .command { display: grid; grid-template-columns: 1fr auto; gap: 0.5rem; align-items: start; }
    pre { margin: 0; padding: 0.55rem 0.75rem; min-height: 2.25rem; background: var(--sunk); border-radius: 6px; font: 0.85rem/1.5 var(--mono); white-space: pre-wrap; overflow-wrap: anywhere; }
    .files { display: flex; flex-wrap: wrap; gap: 0.5rem; margin-top: 0.75rem; }
    p.small a { display: inline-block; padding: 0.3rem 0; }
    @media (max-width: 30rem) { .command { grid-template-columns: 1fr; } }
    @media print { h3.export { display: none; } }
  `];

  @property({ attribute: false }) request!: Request;
  @property({ attribute: false }) report: Report | undefined;
  @property({ attribute: false }) hash = '';
  @state() private failed = false;

  protected override render(): TemplateResult {
    const { i18n, request, report } = this;
    const command = probeCommand(request);
    const config = configFileName(request);
    return html`<p>${i18n.t('measured.intro')}</p>
      <div class="command"><pre><code>${command}</code></pre><ml-copy .i18n=${i18n} .label=${i18n.t('share.copy')} .text=${() => command}></ml-copy></div>
      <div class="files"><button @click=${() => download(config, configText(request.model))}>${config}</button></div>
      ${report ? html`<h3 class="export">${i18n.t('export.heading')}</h3>
        <div class="files">
          <ml-copy .i18n=${i18n} .label=${i18n.t('export.markdown')} .text=${() => this.markdown(report)}></ml-copy>
          <button @click=${() => download('ledger.csv', ledgerCsv(report), 'text/csv')}>${i18n.t('export.csv')}</button>
          <button @click=${() => download('report.json', JSON.stringify(report, null, 1))}>${i18n.t('export.json')}</button>
          <button @click=${() => download('memory.svg', this.picture(report), 'image/svg+xml')}>${i18n.t('export.svg')}</button>
          <button @click=${() => this.png(report)}>${i18n.t('export.png')}</button>
        </div>
        ${SINGLE ? nothing : html`<p class="small"><a href=${new URL('memory-ledger.html', SITE).href} download>${i18n.t('export.single')}</a></p>`}
        ${SINGLE ? nothing : this.embed()}
        <p role="status">${this.failed ? i18n.t('export.failed') : nothing}</p>` : nothing}`;
  }

  private embed(): TemplateResult {
    const { i18n } = this;
    const snippet = embedSnippet(this.request, SITE.href);
    return html`<h3 class="export">${i18n.t('share.embed')}</h3><p>${i18n.t('share.embed.text')}</p>
      <div class="command"><pre class="embed"><code>${snippet}</code></pre><ml-copy .i18n=${i18n} .label=${i18n.t('share.copy')} .text=${() => snippet}></ml-copy></div>`;
  }

  private question(report: Report): string {
    return runText(report, modelName(this.request.model, this.i18n), this.i18n);
  }

  private markdown(report: Report): string {
    const link = location.href.replace(/#.*$/, '') + this.hash;
    const facts = { title: this.question(report), answer: headlineText(report.verdict, this.i18n), link, command: probeCommand(this.request) };
    return summaryMarkdown(report, facts, this.i18n);
  }

  private picture(report: Report): string {
    const page = this.getRootNode() as ShadowRoot;
    const charts = ['ml-capacity-bar', 'ml-timeline'].map((name) => page.querySelector(name)?.shadowRoot?.querySelector('svg'));
    return pictureOf(charts.filter((chart): chart is SVGSVGElement => chart instanceof SVGSVGElement), `${this.question(report)} ${headlineText(report.verdict, this.i18n)}`);
  }

  private async png(report: Report): Promise<void> {
    try {
      download('memory.png', await pngOf(this.picture(report)));
      this.failed = false;
    } catch {
      this.failed = true; // said beside the buttons
    }
  }
}
