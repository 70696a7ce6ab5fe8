// ledger_view.ts - <ml-ledger>: what is alive at the peak as a tree that adds up; filter and copy.
//
// A table with one body per branch; a branch is opened by a button in its row, so that every screen reader can.

import { html, nothing, type PropertyValues, type TemplateResult } from 'lit';
import { customElement, property, state } from 'lit/decorators.js';
import type { Line, Report } from '../core/types.js';
import { formulaText, terms } from '../format/formula.js';
import { ledgerTree, matches, sum, type Branch, type Group } from '../format/ledger_tree.js';
import { ledgerMarkdown } from '../format/markdown.js';
import { base, categories, controls, tables } from '../styles/shared.js';
import { LedgerElement } from './base.js';
import { ledgerStyles } from './ledger_styles.js';
import { thread, threadStyles } from './thread.js';
import './copy_button.js';

const UNTOUCHED: ReadonlySet<string> = new Set();

@customElement('ml-ledger')
export class LedgerView extends LedgerElement {
  static override styles = [base, controls, tables, categories, threadStyles, ledgerStyles];

  @property({ attribute: false }) report!: Report;
  @state() private query = '';
  @state() private open: ReadonlySet<string> = UNTOUCHED;

  private largest = 1;

  // Opens at the largest part, so that the first thing seen is a product with the reader's numbers.
  protected override willUpdate(changed: PropertyValues): void {
    if (!changed.has('report')) return;
    const [first] = ledgerTree(this.report.at_peak.tensors);
    this.largest = first?.bytes ?? 1;
    if (this.open === UNTOUCHED && first) this.open = new Set([first.category, `${first.category}/${first.groups[0]?.name ?? ''}`]);
  }

  protected override render(): TemplateResult {
    const { i18n } = this;
    const all = this.report.at_peak.tensors;
    const shown = this.query === '' ? all : all.filter((line) => matches(line, this.query, i18n.category(line.category)));
    const tree = ledgerTree(shown);
    return html`<h2>${i18n.t('ledger.heading')}</h2>
      <p class="soft">${i18n.t('ledger.intro')}</p>
      ${this.toolbar(tree, shown)}
      <div class="wrap"><table>
        <caption class="visually-hidden">${i18n.t('ledger.heading')}</caption>
        <thead><tr>
          <th scope="col">${i18n.t('ledger.tensor')}</th>
          <th scope="col" class="wide">${i18n.t('ledger.formula')}</th>
          <th scope="col" class="wide">${i18n.t('ledger.shape')}</th>
          <th scope="col" class="wide">${i18n.t('ledger.dtype')}</th>
          <th scope="col" class="right">${i18n.t('table.bytes')}</th>
          <th scope="col" class="right share">${i18n.t('table.share')}</th>
        </tr></thead>
        ${tree.map((branch) => this.branch(branch))}
        ${this.foot(shown)}
      </table></div>
      <p class="total small">${this.total(all)}</p>
      ${this.letters(all)}
      ${this.host()}`;
  }

  // A ledger of its own: none of it is on the card.
  private host(): TemplateResult | typeof nothing {
    const { i18n } = this;
    const host = this.report.host_memory;
    if (!host) return nothing;
    return html`<h3>${i18n.t('ledger.host')}</h3>
      <p class="soft">${i18n.t('ledger.host.intro')}</p>
      <div class="wrap"><table>
        <caption class="visually-hidden">${i18n.t('ledger.host')}</caption>
        <thead><tr>
          <th scope="col">${i18n.t('ledger.tensor')}</th>
          <th scope="col">${i18n.t('ledger.dtype')}</th>
          <th scope="col" class="right">${i18n.t('table.bytes')}</th>
        </tr></thead>
        <tbody>${host.tensors.map(({ name, category, dtype, bytes }) => html`<tr>
          <th scope="row"><span class="swatch c-${category}"></span><span class="mono name">${breakable(name)}</span> <span class="soft">${i18n.category(category)}</span></th>
          <td class="mono">${dtype}</td>
          <td class="right" title=${i18n.format.exact(bytes)}>${i18n.bytes(bytes)}</td></tr>`)}</tbody>
        <tfoot><tr><th scope="row">${i18n.t('table.sum')}</th><td></td><td class="right" title=${i18n.format.exact(host.tensor_bytes)}>${i18n.bytes(host.tensor_bytes)}</td></tr></tfoot>
      </table></div>`;
  }

  private toolbar(tree: readonly Branch[], shown: readonly Line[]): TemplateResult {
    const { i18n } = this;
    const keys = tree.flatMap((branch) => [branch.category, ...branch.groups.map((group) => `${branch.category}/${group.name}`)]);
    const allOpen = keys.every((key) => this.open.has(key));
    return html`<div class="toolbar">
      <div class="filter"><label for="filter">${i18n.t('ledger.filter')}</label>
        <input id="filter" type="search" autocomplete="off" spellcheck="false" placeholder=${i18n.t('ledger.filter.hint')}
          @input=${(event: InputEvent) => { this.query = (event.target as HTMLInputElement).value.trim(); }}></div>
      <button @click=${() => { this.open = new Set(allOpen ? [] : keys); }}>${i18n.t(allOpen ? 'ledger.close_all' : 'ledger.open_all')}</button>
      <ml-copy .i18n=${i18n} .label=${i18n.t('ledger.copy')} .text=${() => ledgerMarkdown(this.report, shown, i18n)}></ml-copy>
    </div>`;
  }

  private isOpen(key: string): boolean {
    return this.query !== '' || this.open.has(key);
  }

  private toggle(key: string): void {
    const open = new Set(this.open);
    if (!open.delete(key)) open.add(key);
    this.open = open;
  }

  private branch(branch: Branch): TemplateResult {
    const open = this.isOpen(branch.category);
    const name = html`<span class="swatch c-${branch.category}"></span>${this.i18n.category(branch.category)}`;
    return html`<tbody class="branch">
      ${this.parentRow(branch.category, name, branch.bytes, 'category')}
      ${open ? branch.groups.map((group) => this.group(branch, group)) : nothing}
    </tbody>`;
  }

  private group(branch: Branch, group: Group): TemplateResult {
    const key = `${branch.category}/${group.name}`;
    const open = this.isOpen(key);
    const lone = branch.groups.length === 1;
    const name = html`<span class="mono name">${breakable(group.name || this.i18n.t('ledger.rest'))}</span> <span class="soft small">(${group.lines.length})</span>`;
    return html`${lone ? nothing : this.parentRow(key, name, group.bytes, 'group')}
      ${open || lone ? group.lines.map((line) => this.line(line)) : nothing}`;
  }

  private parentRow(key: string, name: TemplateResult, bytes: number, level: string): TemplateResult {
    const open = this.isOpen(key);
    return html`<tr class=${level}>
      <th scope="row">
        <button class="twist" aria-expanded=${open ? 'true' : 'false'} ?disabled=${this.query !== ''} @click=${() => this.toggle(key)}>
          <span class="arrow" aria-hidden="true"></span>${name}</button></th>
      <td class="wide" colspan="3">${thread(key.split('/')[0] ?? '', bytes, this.largest)}</td>
      ${this.amounts(bytes)}
    </tr>`;
  }

  private line(line: Line): TemplateResult {
    return html`<tr class="line">
      <th scope="row"><span class="mono name">${breakable(line.name || this.i18n.t('ledger.rest'))}</span> <span class="op soft">${line.op}</span>
        <span class="narrow">${this.formula(line)} <span class="soft mono">${line.dtype}</span></span></th>
      <td class="wide">${this.formula(line)}</td>
      <td class="wide mono">${line.shape.length > 0 ? line.shape.join(' × ') : '1'}</td>
      <td class="wide mono">${line.dtype}</td>
      ${this.amounts(line.bytes)}
    </tr>`;
  }

  private formula(line: Line): TemplateResult {
    const { format } = this.i18n;
    return html`<span class="formula" title=${`${formulaText(line, format)} = ${format.exact(line.bytes)}`}>${terms(line, format).map(
      ({ symbol, value }, i) => html`${i > 0 ? ' × ' : ''}<span class="term">${symbol ? html`<i>${symbol}</i> ` : nothing}${value}</span>`,
    )}</span>`;
  }

  private amounts(bytes: number): TemplateResult {
    const { format } = this.i18n;
    const { tensor_bytes, workspace_bytes } = this.report.at_peak;
    return html`<td class="right" title=${format.exact(bytes)}>${this.i18n.bytes(bytes)}</td>
      <td class="right share soft">${format.percent(bytes, tensor_bytes + workspace_bytes)}</td>`;
  }

  private foot(shown: readonly Line[]): TemplateResult {
    const { i18n } = this;
    const all = this.report.at_peak.tensors;
    const row = (name: string, bytes: number): TemplateResult =>
      html`<tr><th scope="row">${name}</th><td class="wide" colspan="3"></td>${this.amounts(bytes)}</tr>`;
    const found = shown.length === 0
      ? i18n.t('ledger.none', { query: this.query })
      : i18n.t('ledger.shown', { lines: i18n.format.count(shown.length), bytes: i18n.bytes(sum(shown)) });
    return html`<tfoot>${this.query === '' ? nothing : row(found, sum(shown))}${row(i18n.t('table.sum'), sum(all))}</tfoot>`;
  }

  private total(all: readonly Line[]): string {
    const { format } = this.i18n;
    const { tensor_bytes, workspace_bytes } = this.report.at_peak;
    const [bytes, peak] = [sum(all), tensor_bytes + workspace_bytes];
    if (bytes !== peak) return this.i18n.t('ledger.unequal', { bytes: format.exact(bytes), peak: format.exact(peak) });
    const parts = { tensors: format.exact(tensor_bytes), workspace: format.exact(workspace_bytes) };
    return this.i18n.t('ledger.equal', { lines: format.count(all.length), bytes: format.exact(bytes), ...parts });
  }

  private letters(lines: readonly Line[]): TemplateResult {
    const used = new Set(lines.flatMap((line) => line.factors.map((factor) => factor.symbol)));
    const known = [...used].filter((symbol) => this.i18n.maybe(`symbol.${symbol}`, '') !== '').sort((a, b) => (a.toLowerCase() < b.toLowerCase() ? -1 : 1));
    if (known.length === 0) return html``;
    return html`<p class="letters small soft"><span>${this.i18n.t('symbols.heading')}:</span>
      ${known.map((symbol) => html`<span><i>${symbol}</i> ${this.i18n.maybe(`symbol.${symbol}`, symbol)}</span>`)}</p>`;
  }
}

// Long names break after their dots and before their underscores, not inside words.
function breakable(name: string): TemplateResult[] {
  return name.split(/(?<=\.)|(?=_)/).map((part, i) => html`${i > 0 ? html`<wbr />` : nothing}${part}`);
}
