// measured_view.ts - <ml-measured>: predicted beside measured, per phase, per category and per rank, the difference named.

import { css, html, nothing, type TemplateResult } from 'lit';
import { customElement, property } from 'lit/decorators.js';
import type { ComparedRow, Comparison, Drawn } from '../core/types.js';
import { base, controls, tables } from '../styles/shared.js';
import { LedgerElement } from './base.js';

export interface Measured {
  readonly name: string;
  readonly sample: boolean;
  readonly comparison: Comparison;
}

@customElement('ml-measured')
export class MeasuredView extends LedgerElement {
  static override styles = [base, controls, tables, css`
    article { border: 1px solid var(--rule); border-radius: 8px; background: var(--raised); padding: 1rem 1.1rem; margin-top: 1rem; }
    header { display: flex; gap: 1rem; align-items: start; justify-content: space-between; }
    header h3 { margin: 0; padding-top: 0.4rem; min-width: 0; overflow-wrap: anywhere; }
    header button { flex: none; }
    .summary { margin: 0.35rem 0 0.9rem; }
    .same { color: var(--good); font-weight: 600; }
    .tables { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); gap: 1.1rem 2rem; }
    table { font-size: 0.85rem; }
    .line th { padding-inline-start: 1rem; color: var(--ink-soft); }
    .differs { font-weight: 600; }
    th, td { padding-block: 0.3rem; padding-inline-end: 0.5rem; }
    tbody th { white-space: nowrap; }
    details { margin-top: 0.8rem; }
    .ranks, figure { grid-column: 1 / -1; }
    figure { margin: 0; min-width: 0; }
    figcaption { font-weight: 600; font-size: 0.9rem; padding-bottom: 0.5rem; }
    .bars { width: 40%; }
    thead .bars { border-bottom-color: var(--rule-strong); }
    .pair { display: block; width: 100%; height: 12px; forced-color-adjust: none; }
    .predicted { fill: var(--rule-strong); }
    .measured { fill: var(--accent); }
    @media (max-width: 26rem) { .bars { width: 20%; } th, td { padding-inline-end: 0.5rem; } table { font-size: 0.8rem; } .right, tbody th { white-space: normal; } }
  `];

  @property({ attribute: false }) measured: readonly Measured[] = [];

  protected override render(): TemplateResult {
    return html`${this.measured.map((entry) => this.entry(entry))}`;
  }

  private entry({ name, sample, comparison }: Measured): TemplateResult {
    const { i18n } = this;
    const gpu = comparison.environment?.['gpu']; // PyTorch's hook gives a name, the probe what it knows of the GPU
    const card = gpu !== null && typeof gpu === 'object' ? (gpu as { name?: unknown }).name : gpu;
    const timeline = drawn(comparison);
    const device = String(card ?? comparison.environment?.['device'] ?? '…');
    return html`<article>
      <header>
        <h3>${sample ? i18n.t('measured.sample') : name} <span class="soft small">${i18n.t('measured.device', { device })} · ${this.runText(comparison)}</span></h3>
        <button class="quiet" aria-label=${i18n.t('measured.remove', { name })} @click=${() => this.ask({ kind: 'forget', name })}>✕</button>
      </header>
      <p class="summary">${this.summary(comparison)}</p>
      <div class="tables">
        <div>${this.table('measured.phases', comparison.phases, (id) => i18n.phase(id))}</div>
        <div>${this.table('measured.categories', comparison.categories, (id) => i18n.category(id))}</div>
        <div>${this.table('measured.peaks', comparison.peaks, (id) => this.peakName(id))}</div>
        ${timeline ? html`<figure><figcaption>${i18n.t('measured.timeline')}</figcaption>
          <ml-timeline .i18n=${i18n} .report=${timeline}></ml-timeline></figure>` : nothing}
        ${comparison.ranks?.length ? html`<div class="ranks">${this.ranks(comparison.ranks)}</div>` : nothing}
      </div>
    </article>`;
  }

  private runText(comparison: Comparison): string {
    const { family = '', params = 0 } = comparison.model ?? {};
    const { batch, seq } = comparison.recipe;
    const { format } = this.i18n;
    const values = { batch: format.count(Number(batch ?? 1)), seq: format.count(Number(seq ?? 0)) };
    const shape = this.i18n.t(family === 'plain' ? 'measured.run.plain' : 'measured.run', values);
    return [family, this.i18n.t('model.facts', { params: format.count(params), family: String(comparison.recipe['precision'] ?? '') }), shape].filter((part) => part !== '').join(' · ');
  }

  // A pair of bars a rank, on one scale.
  private ranks(rows: readonly ComparedRow[]): TemplateResult {
    const most = Math.max(1, ...rows.flatMap((row) => [row.predicted_bytes ?? 0, row.measured_bytes ?? 0]));
    return this.table('measured.ranks', rows, (id) => this.rankName(id), (row) => html`<svg class="pair" viewBox="0 0 100 12" preserveAspectRatio="none" aria-hidden="true">
      <rect class="predicted" y="1" height="4" width=${(100 * (row.predicted_bytes ?? 0)) / most}></rect>
      <rect class="measured" y="7" height="4" width=${(100 * (row.measured_bytes ?? 0)) / most}></rect></svg>`);
  }

  private rankName(id: string): string {
    return this.i18n.t('measured.rank', { rank: id });
  }

  private peakName(id: string): string {
    return this.i18n.maybe(`figures.${id.replace(/_bytes$/, '')}`, id);
  }

  private summary(comparison: Comparison): TemplateResult {
    const ranks = comparison.ranks ?? [];
    const rows = [...comparison.peaks, ...comparison.phases, ...comparison.categories, ...ranks];
    const worst = largestDifference(rows);
    const status = comparison.status === 'ok' ? nothing : html` ${this.i18n.t('measured.status', { status: comparison.status })}`;
    if (!worst?.difference_bytes) return html`<span class="same">✓ ${this.i18n.t('measured.same')}</span>${status}`;
    const share = this.i18n.format.percent(Math.abs(worst.difference_bytes), worst.measured_bytes ?? 0);
    const name = ranks.includes(worst) ? this.rankName(worst.name) : comparison.phases.includes(worst) ? this.i18n.phase(worst.name) : comparison.peaks.includes(worst) ? this.peakName(worst.name) : this.i18n.category(worst.name);
    return html`${this.i18n.t('measured.differ', { name, difference: this.i18n.format.difference(worst.difference_bytes), share })}${status}`;
  }

  private table(caption: 'measured.phases' | 'measured.categories' | 'measured.peaks' | 'measured.ranks', rows: readonly ComparedRow[], nameOf: (id: string) => string, chart?: (row: ComparedRow) => TemplateResult): TemplateResult {
    const { i18n } = this;
    const bars = (row: ComparedRow): TemplateResult | typeof nothing => (chart ? html`<td class="bars">${chart(row)}</td>` : nothing);
    return html`<table>
      <caption>${i18n.t(caption)}</caption>
      <thead><tr><th scope="col">${i18n.t('measured.name')}</th>${chart ? html`<td class="bars"></td>` : nothing}
        ${(['measured.predicted', 'measured.measured', 'measured.difference'] as const).map((key) => html`<th scope="col" class="right">${i18n.t(key)}</th>`)}</tr></thead>
      <tbody>${rows.map((row) => [this.row(row, nameOf(row.name), '', bars(row)), ...differing(row).map((line) => this.row(line, i18n.category(line.name), 'line'))])}</tbody>
    </table>`;
  }

  private row(row: ComparedRow, name: string, kind: string, bars: TemplateResult | typeof nothing = nothing): TemplateResult {
    return html`<tr class=${kind}><th scope="row">${name}</th>${bars}${this.amount(row.predicted_bytes)}${this.amount(row.measured_bytes)}${this.difference(row)}</tr>`;
  }

  private amount(bytes: number | null): TemplateResult {
    if (bytes === null) return html`<td class="right soft">${this.i18n.t('measured.not')}</td>`;
    return html`<td class="right" title=${this.i18n.format.exact(bytes)}>${this.i18n.bytes(bytes)}</td>`;
  }

  private difference({ difference_bytes: bytes }: ComparedRow): TemplateResult {
    if (bytes === null) return html`<td class="right soft">–</td>`;
    if (bytes === 0) return html`<td class="right soft">${this.i18n.t('measured.equal')}</td>`;
    return html`<td class="right differs" title=${this.i18n.format.exact(bytes)}>${this.i18n.format.difference(bytes)}</td>`;
  }
}

// The prediction's timeline with the measured one over it; phases stand in a table of their own.
// One object a comparison, so that the cursor stays where it is when the page is drawn anew.
function drawn(comparison: Comparison): Drawn | undefined {
  if (!drawings.has(comparison)) drawings.set(comparison, laidOver(comparison));
  return drawings.get(comparison);
}
const drawings = new WeakMap<Comparison, Drawn | undefined>();

function laidOver(comparison: Comparison): Drawn | undefined {
  const { timeline, measured_points: measured, peaks } = comparison;
  if (!timeline || !measured || measured.length === 0) return undefined;
  const predicted = (name: string): number => peaks.find((row) => row.name === name)?.predicted_bytes ?? 0;
  return {
    timeline, measured, phases: [], verdict: { usable_bytes: Infinity },
    peaks: { tensor_bytes: predicted('tensor_bytes'), workspace_bytes: predicted('workspace_bytes'), reserved_bytes: predicted('reserved_bytes') },
  };
}

// The lines on which a row's difference stands.
function differing(row: ComparedRow): readonly ComparedRow[] {
  return row.difference_bytes ? (row.lines ?? []).filter((line) => line.difference_bytes) : [];
}

export function largestDifference(rows: readonly ComparedRow[]): ComparedRow | undefined {
  return rows.reduce<ComparedRow | undefined>((worst, row) => (Math.abs(row.difference_bytes ?? 0) > Math.abs(worst?.difference_bytes ?? 0) ? row : worst), undefined);
}
