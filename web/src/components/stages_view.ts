// stages_view.ts - <ml-stages>: the stages of a pipeline, each GPU's peak beside what its card can hold. Everything else on the page
// is told of the stage that needs most.

import { css, html, nothing, type TemplateResult } from 'lit';
import { customElement, property } from 'lit/decorators.js';
import type { Pipeline, Report } from '../core/types.js';
import { base, categories, tables } from '../styles/shared.js';
import { LedgerElement } from './base.js';
import { thread, threadStyles } from './thread.js';

@customElement('ml-stages')
export class StagesView extends LedgerElement {
  static override styles = [base, tables, categories, threadStyles, css`
    td.bar { width: 45%; }
    .most { font-weight: 600; }
    .short { color: var(--bad); }
  `];

  @property({ attribute: false }) report!: Report & { readonly pipeline: Pipeline };

  protected override render(): TemplateResult {
    const { i18n, report: { pipeline, verdict } } = this;
    const largest = Math.max(verdict.usable_bytes, ...pipeline.stages.map((stage) => stage.allocated_bytes));
    return html`<h2>${i18n.t('stages.heading')}</h2>
      <p class="small soft">${i18n.t('stages.hint', { stage: pipeline.stage + 1, bytes: i18n.bytes(verdict.usable_bytes) })}</p>
      <div class="scroll" tabindex="0" role="region" aria-label=${i18n.t('stages.heading')}><table>
        <thead><tr><th scope="col">${i18n.t('stages.stage')}</th><th scope="col" class="right">${i18n.t('stages.tensors')}</th>
          <th scope="col" class="right">${i18n.t('table.allocated')}</th><td></td></tr></thead>
        <tbody>${pipeline.stages.map((stage, at) => html`<tr class=${at === pipeline.stage ? 'most' : ''}>
          <th scope="row">${at + 1}${at === pipeline.stage ? html` <span class="small">${i18n.t('stages.most')}</span>` : nothing}</th>
          <td class="right" title=${i18n.format.exact(stage.tensor_bytes)}>${i18n.bytes(stage.tensor_bytes)}</td>
          <td class="right ${stage.allocated_bytes > verdict.usable_bytes ? 'short' : ''}" title=${i18n.format.exact(stage.allocated_bytes)}>${i18n.bytes(stage.allocated_bytes)}</td>
          <td class="bar">${thread(stage.allocated_bytes > verdict.usable_bytes ? 'logits' : 'weights', stage.allocated_bytes, largest)}</td></tr>`)}</tbody>
      </table></div>`;
  }
}
