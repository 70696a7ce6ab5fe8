// timeline_view.ts - <ml-timeline>: the chart, what is alive at the cursor, and the phases as a table.
//
// Here is the cursor (pointer and keys); drawing is timeline_chart.ts, and the cursor's moment is the only state.

import { css, html, nothing, type PropertyValues, type TemplateResult } from 'lit';
import { customElement, property, state } from 'lit/decorators.js';
import type { Drawn, MeasuredPoint, Report } from '../core/types.js';
import { peakPoint, phaseAt, pointAt, step } from '../format/moments.js';
import { base, categories, controls, tables } from '../styles/shared.js';
import { LedgerElement } from './base.js';
import { chartFrame, chartStyles, drawTimeline, type ChartFrame } from './timeline_chart.js';
import { WidthController } from './width.js';

@customElement('ml-timeline')
export class TimelineView extends LedgerElement {
  static override styles = [base, controls, tables, categories, chartStyles, css`
    .chart { position: relative; touch-action: pan-y; cursor: crosshair; }
    .readout { margin-top: 0.75rem; }
    .readout h3 { margin: 0 0 0.4rem; font-weight: 600; font-variant-numeric: tabular-nums; }
    ul { list-style: none; margin: 0; padding: 0; display: grid; grid-template-columns: repeat(auto-fill, minmax(14.5rem, 1fr)); gap: 0.2rem 1.75rem; font-size: 0.9rem; }
    li { display: flex; align-items: baseline; border-bottom: 1px solid var(--rule); padding: 0.15rem 0; }
    li .number { margin-inline-start: auto; }
    .c-unknown { fill: var(--c-inputs); }
    .swatch.c-unknown { background: var(--c-inputs); }
    .bar { display: flex; flex-wrap: wrap; gap: 0.25rem 1rem; align-items: baseline; justify-content: space-between; }
    .bar p { margin: 0; }
    details { margin-top: 0.9rem; }
    @media print { .bar { display: none; } }
  `];

  @property({ attribute: false }) report!: Drawn | (Report & Pick<Drawn, 'measured'>);
  @property({ attribute: false }) caption = ''; // of a history that is no report
  @state() private cursor: number | undefined; // index of a point; undefined: the peak
  private readonly size = new WidthController(this);

  protected override willUpdate(changed: PropertyValues): void {
    if (changed.has('report')) this.cursor = undefined;
  }

  protected override render(): TemplateResult {
    const { i18n, report } = this;
    const frame = this.size.width > 0 ? chartFrame(report, this.size.width, i18n.format.units) : undefined;
    const heading = this.heading();
    return html`${heading ? html`<h2>${heading}</h2>` : nothing}
      ${frame ? this.chart(frame) : nothing}
      <div class="readout">
        <div class="bar">
          <h3>${this.moment()}</h3>
          ${this.cursor === undefined
            ? html`<p class="small soft">${i18n.t('timeline.hint')}</p>`
            : html`<button class="quiet" @click=${() => { this.cursor = undefined; }}>${i18n.t('timeline.to_peak')}</button>`}
        </div>
        ${this.alive()}
      </div>
      ${report.phases.length > 0 ? html`<details><summary>${i18n.t('timeline.table')}</summary>${this.phaseTable()}</details>` : nothing}`;
  }

  private heading(): string {
    if (!('recipe' in this.report)) return this.caption;
    return this.i18n.t(this.report.recipe['task'] === 'generate' ? 'timeline.heading.generate' : 'timeline.heading');
  }

  private chart(frame: ChartFrame): TemplateResult {
    const { timeline } = this.report;
    return html`<div class="chart" role="slider" tabindex="0" aria-label=${this.i18n.t('timeline.label')}
        aria-valuemin="0" aria-valuemax=${timeline.points.length - 1} aria-valuenow=${this.at} aria-valuetext=${this.valueText()}
        @keydown=${this.onKey} @pointermove=${(event: PointerEvent) => this.onPointer(event, frame)}
        @pointerdown=${(event: PointerEvent) => this.onPointer(event, frame)}
        @pointerleave=${(event: PointerEvent) => { if (event.pointerType === 'mouse') this.cursor = undefined; }}>
      ${drawTimeline(this.report, frame, this.i18n, this.at)}
    </div>`;
  }

  private get at(): number {
    return this.cursor ?? peakPoint(this.report.timeline);
  }

  private get event(): number {
    return this.report.timeline.points[this.at]?.event ?? 0;
  }

  private onKey(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const size = event.shiftKey ? 10 : 1;
    let at: number | undefined = this.at;
    for (let i = 0; i < size && at !== undefined; ++i) at = step(this.report.timeline, at, event.key);
    if (at === undefined) return;
    event.preventDefault();
    this.cursor = at;
  }

  private onPointer(event: PointerEvent, frame: ChartFrame): void {
    const left = (event.currentTarget as HTMLElement).getBoundingClientRect().left;
    this.cursor = pointAt(this.report.timeline, frame.x.invert(event.clientX - left));
  }

  private total(): number {
    return this.report.timeline.points[this.at]?.categories.reduce((all, bytes) => all + bytes, 0) ?? 0;
  }

  private valueText(): string {
    const { timeline } = this.report;
    const { format } = this.i18n;
    const alive = this.i18n.t('timeline.value', {
      event: format.count(this.event), events: format.count(timeline.events),
      phase: this.i18n.phase(phaseAt(timeline, this.event)), bytes: this.i18n.bytes(this.total()),
    });
    const [predicted, measured] = this.allocated();
    if (predicted === undefined || measured === undefined) return alive;
    return `${alive} ${this.i18n.t('timeline.value.measured', { predicted: this.i18n.bytes(predicted), measured: this.i18n.bytes(measured) })}`;
  }

  // Where a run is laid over the prediction: what either had allocated at the cursor; a run that ended had nothing more.
  private allocated(): readonly [predicted?: number, measured?: number] {
    const measured = this.report.measured ?? [];
    if (this.event < (measured[0]?.event ?? Infinity)) return [];
    const found = measured[pointAt({ points: measured }, this.event)] as MeasuredPoint;
    return [this.report.timeline.points[this.at]?.allocated_bytes, found.allocated_bytes];
  }

  private moment(): string {
    const total = this.i18n.bytes(this.total());
    if (this.cursor === undefined) return `${this.i18n.t('timeline.at_peak')}: ${total}`;
    const phase = this.i18n.phase(phaseAt(this.report.timeline, this.event));
    return `${this.i18n.t('timeline.alive', { event: this.i18n.format.count(this.event) })} · ${phase}: ${total}`;
  }

  private alive(): TemplateResult {
    const { points, categories: names } = this.report.timeline;
    const values = points[this.at]?.categories ?? [];
    const shown = names.map((id, i) => ({ id, bytes: values[i] ?? 0 })).filter(({ id }) => this.everAlive(id));
    const [predicted, measured] = this.allocated();
    return html`<ul>
      ${measured === undefined ? nothing : [this.amount('timeline.predicted', predicted ?? 0), this.amount('timeline.measured', measured)]}
      ${shown.map(({ id, bytes }) => html`<li><span class="swatch c-${id}"></span>${this.i18n.category(id)}
        <span class="number" title=${this.i18n.format.exact(bytes)}>${this.i18n.bytes(bytes)}</span></li>`)}
    </ul>`;
  }

  private amount(key: 'timeline.predicted' | 'timeline.measured', bytes: number): TemplateResult {
    return html`<li>${this.i18n.t(key)}<span class="number" title=${this.i18n.format.exact(bytes)}>${this.i18n.bytes(bytes)}</span></li>`;
  }

  // Lines come and go with the report only, so that the list does not jump under the cursor.
  private everAlive(id: string): boolean {
    const { points, categories: names } = this.report.timeline;
    const column = names.findIndex((name) => name === id);
    return points.some((point) => (point.categories[column] ?? 0) > 0);
  }

  private phaseTable(): TemplateResult {
    const { i18n } = this;
    const cell = (bytes: number): TemplateResult => html`<td class="right" title=${i18n.format.exact(bytes)}>${i18n.bytes(bytes)}</td>`;
    return html`<div class="scroll" tabindex="0" role="region" aria-label=${this.heading()}><table>
      <thead><tr>
        <th scope="col">${i18n.t('table.phase')}</th>
        ${(['table.start', 'table.peak', 'table.end', 'table.allocated', 'table.reserved'] as const).map((key) => html`<th scope="col" class="right">${i18n.t(key)}</th>`)}
        <th scope="col">${i18n.t('table.at')}</th>
      </tr></thead>
      <tbody>${this.report.phases.map((phase) => html`<tr>
        <th scope="row">${i18n.phase(phase.name)}</th>
        ${cell(phase.start_bytes)}${cell(phase.peak_bytes)}${cell(phase.end_bytes)}${cell(phase.allocated_peak_bytes)}${cell(phase.reserved_peak_bytes)}
        <td><code>${phase.op}</code></td>
      </tr>`)}</tbody>
    </table></div>`;
  }
}
