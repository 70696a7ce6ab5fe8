// capacity_bar.ts - <ml-capacity-bar>: memory at the peak, by category, against the card; rules below tell tensors,
// allocated, reserved and device memory apart. The table is the chart's twin and its legend.

import { css, html, nothing, svg, type SVGTemplateResult, type TemplateResult } from 'lit';
import { customElement, property } from 'lit/decorators.js';
import type { Report } from '../core/types.js';
import { barParts, type Extent, type Part } from '../format/bar_parts.js';
import { base, categories, hatch, tables } from '../styles/shared.js';
import { LedgerElement } from './base.js';
import { thread, threadStyles } from './thread.js';
import { WidthController } from './width.js';

const BAR = { top: 20, height: 52 };
const RULE_STEP = 20;
const CHAR_WIDTH = 7.2;

interface Rows { readonly label: number; readonly stacked: boolean; readonly step: number }

@customElement('ml-capacity-bar')
export class CapacityBar extends LedgerElement {
  static override styles = [base, tables, categories, hatch, threadStyles, css`
    svg { display: block; width: 100%; overflow: visible; }
    text { font: 12px var(--sans); fill: var(--ink); }
    .room { height: 162px; } /* the chart's, until its width is known: nothing jumps */
    .on { fill: var(--c-text); pointer-events: none; }
    .extent line { stroke: var(--rule-strong); }
    .extent text { fill: var(--ink-soft); font-variant-numeric: tabular-nums; }
    .capacity { stroke: var(--ink); stroke-width: 2; }
    .over { fill: none; stroke: var(--bad); stroke-width: 2; }
    .frame { fill: var(--sunk); stroke: var(--rule-strong); }
    .hatched { fill: url(#hatch); stroke: var(--hatch); }
    #hatch path { stroke: var(--hatch); }
    thead .how { border-bottom-color: var(--rule-strong); }
    .table { margin-top: 1.1rem; }
    td.how { width: 38%; }
    @media (max-width: 30rem) { .how { display: none; } .room { height: 218px; } }
    @media (max-width: 22rem) { .share { display: none; } }
  `];

  @property({ attribute: false }) report!: Report;
  @property({ attribute: false }) gpuName = '';
  private readonly size = new WidthController(this);

  protected override render(): TemplateResult {
    const view = barParts(this.report);
    const width = this.size.width;
    return html`<h2>${this.i18n.t('bar.heading')}</h2>
      ${width > 0 ? this.chart(view.parts, view.extents, view.end, width) : html`<div class="room"></div>`}
      ${this.table(view.parts)}`;
  }

  private chart(parts: readonly Part[], extents: readonly Extent[], end: number, width: number): TemplateResult {
    const x = (bytes: number): number => 1 + (bytes / end) * (width - 2); // no ticks: a scale of d3 would be its only guest on the first screen
    const capacity = this.report.verdict.capacity_bytes;
    const rows = this.rows(extents, width);
    const height = BAR.top + BAR.height + 10 + extents.length * rows.step;
    return html`<svg height=${height} viewBox="0 0 ${width} ${height}" role="img" aria-label=${this.i18n.t('bar.label', { gpu: this.gpuName })}>
      <defs><pattern id="hatch" width="5" height="5" patternUnits="userSpaceOnUse"><path d="M-1,6 L6,-1 M-1,1 L1,-1 M4,6 L6,4" /></pattern></defs>
      <rect class="frame" x=${x(0)} y=${BAR.top} width=${x(capacity) - x(0)} height=${BAR.height}></rect>
      ${parts.map((part) => this.segment(part, x))}
      ${this.capacityMark(x(capacity), width)}
      ${extents.map((extent, row) => this.extent(extent, row, x, rows))}
    </svg>`;
  }

  private segment(part: Part, x: (bytes: number) => number): SVGTemplateResult {
    if (part.kind === 'free') return svg``;
    const left = x(part.from);
    const width = Math.max(x(part.from + part.bytes) - left - (part.kind === 'category' ? 1 : 0), 0.5);
    const name = this.partName(part);
    const bytes = this.i18n.bytes(part.bytes);
    const fits = part.kind === 'category' && width > Math.max(this.textWidth(name), this.textWidth(bytes)) + 12;
    return svg`<g>
      <rect class=${part.kind === 'category' ? `c-${part.id}` : 'hatched'} x=${left} y=${BAR.top} width=${width} height=${BAR.height}>
        <title>${name}: ${bytes}</title>
      </rect>
      ${fits ? svg`<text class="on" x=${left + 7} y=${BAR.top + 22}>${name}</text><text class="on" x=${left + 7} y=${BAR.top + 39}>${bytes}</text>` : nothing}
    </g>`;
  }

  private capacityMark(at: number, width: number): SVGTemplateResult {
    const label = this.i18n.t('bar.capacity', { bytes: this.i18n.bytes(this.report.verdict.capacity_bytes) });
    const end = at > width / 2;
    const over = this.report.verdict.headroom_bytes < 0;
    return svg`<line class="capacity" x1=${at} x2=${at} y1="4" y2=${BAR.top + BAR.height + 5}></line>
      <text x=${end ? at - 6 : at + 6} y="12" text-anchor=${end ? 'end' : 'start'}>${label}</text>
      ${over ? svg`<rect class="over" x=${at} y=${BAR.top} width=${Math.max(width - 1 - at, 1)} height=${BAR.height}></rect>` : nothing}`;
  }

  // A dimension line as in a drawing: what it measures, then a rule to where it ends; on narrow screens one below the other.
  private extent(extent: Extent, row: number, x: (bytes: number) => number, rows: Rows): SVGTemplateResult {
    const y = BAR.top + BAR.height + 16 + row * rows.step;
    const right = x(extent.bytes);
    const rule = rows.stacked ? y + 12 : y;
    const start = Math.min(rows.stacked ? 1 : rows.label, right);
    const beside = !rows.stacked && right < rows.label;
    return svg`<g class="extent">
      <text x=${beside ? right + 8 : 0} y=${y + 4}>${this.extentText(extent)}</text>
      <line x1=${start} x2=${right} y1=${rule} y2=${rule}></line>
      <line x1=${right} x2=${right} y1=${rule - 5} y2=${rule + 5}></line>
    </g>`;
  }

  private rows(extents: readonly Extent[], width: number): Rows {
    const label = Math.max(...extents.map((extent) => this.textWidth(this.extentText(extent)))) + 8;
    const stacked = label > width * 0.65;
    return { label, stacked, step: stacked ? 2 * RULE_STEP - 6 : RULE_STEP };
  }

  private extentText(extent: Extent): string {
    return this.i18n.t(`bar.${extent.id}`, { bytes: this.i18n.bytes(extent.bytes) });
  }

  private table(parts: readonly Part[]): TemplateResult {
    const { i18n } = this;
    const most = Math.max(...parts.map((part) => (part.kind === 'free' ? 0 : part.bytes)));
    const capacity = this.report.verdict.capacity_bytes;
    return html`<div class="table"><table>
      <caption class="visually-hidden">${i18n.t('bar.table')}</caption>
      <thead><tr>
        <th scope="col">${i18n.t('table.category')}</th><td class="how"></td>
        <th scope="col" class="right">${i18n.t('table.bytes')}</th><th scope="col" class="right share">${i18n.t('bar.share')}</th>
      </tr></thead>
      <tbody>${parts.map((part) => html`<tr>
        <th scope="row"><span class="swatch ${swatchClass(part)}"></span>${this.partName(part)}</th>
        <td class="how">${part.kind === 'free' ? nothing : thread(part.kind === 'category' ? part.id : 'workspace', part.bytes, most)}</td>
        <td class="right" title=${i18n.format.exact(part.bytes)}>${i18n.bytes(part.bytes)}</td>
        <td class="right soft share">${i18n.format.percent(part.bytes, capacity)}</td>
      </tr>`)}</tbody>
    </table></div>`;
  }

  private partName(part: Part): string {
    return part.kind === 'category' ? this.i18n.category(part.id) : this.i18n.t(`bar.${part.kind}`);
  }

  private textWidth(text: string): number {
    let units = 0;
    for (const char of text) units += char > '\u2e80' ? 12.5 : CHAR_WIDTH;
    return units;
  }
}

function swatchClass(part: Part): string {
  if (part.kind === 'category') return `c-${part.id}`;
  return part.kind === 'free' ? 'open' : 'hatched';
}
