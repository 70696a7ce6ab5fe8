// compare_view.ts - <ml-compare>: up to four scenarios beside what is shown, their differences marked.

import { css, html, nothing, type TemplateResult } from 'lit';
import { customElement, property } from 'lit/decorators.js';
import type { Core } from '../core/loader.js';
import { CATEGORIES, type Answer, type Bytes, type Outcome, type Recipe, type Report } from '../core/types.js';
import { MOST_PINS, pinKey } from '../state/pins.js';
import { configText, writeValue, type Defaults, type Pin, type Request } from '../state/request.js';
import { base, categories, controls, tables } from '../styles/shared.js';
import { LedgerElement } from './base.js';
import { modelName } from './model_name.js';

const SIGN: Readonly<Record<Answer, string>> = { fits: '✓', tight: '!', does_not_fit: '✕' };

interface Column { readonly title: string; readonly at: number | undefined; readonly recipe: Recipe; readonly model: string; readonly outcome: Outcome<Report> } // at: index of a pin

@customElement('ml-compare')
export class CompareView extends LedgerElement {
  static override styles = [base, controls, tables, categories, css`
    .tools { display: flex; flex-wrap: wrap; gap: 0.5rem; margin-bottom: 1rem; }
    td, thead th { min-width: 8rem; }
    .differs { background: var(--warn-tint); }
    .least { font-weight: 700; }
    thead th { vertical-align: bottom; font-size: 0.9rem; color: var(--ink); }
    .now { font-weight: 600; }
    .fits { color: var(--good); } .tight { color: var(--warn); } .does_not_fit { color: var(--bad); }
    td, td.right { padding-inline: 0.5rem; }
    .pair { display: flex; justify-content: end; gap: 0.25rem; }
    button.small { min-height: 1.75rem; padding: 0.2rem 0.5rem; font-size: 0.82rem; }
    @media (pointer: coarse) { button.small { min-height: 2.75rem; } }
    @media print { .tools, .pair { display: none; } }
  `];

  @property({ attribute: false }) core!: Core;
  @property({ attribute: false }) request!: Request;
  @property({ attribute: false }) defaults!: Defaults;
  @property({ attribute: false }) answer!: Outcome<Report>;
  private readonly known = new Map<string, Outcome<Report>>(); // a pin is computed once

  protected override render(): TemplateResult {
    const { i18n, request } = this;
    const full = request.pins.length >= MOST_PINS;
    return html`<h2>${i18n.t('compare.heading')}</h2>
      ${this.fixed ? nothing : this.tools(full)}
      ${request.pins.length > 0 ? html`<div class="scroll" tabindex="0" role="region" aria-label=${i18n.t('compare.heading')}>${this.table(this.columns())}</div>` : nothing}`;
  }

  private tools(full: boolean): TemplateResult {
    const { i18n, request } = this;
    return html`<p class="soft">${i18n.t('compare.intro')}</p>
      <div class="tools">
        <button ?disabled=${full} @click=${() => this.ask({ kind: 'pin' })}>${i18n.t(full ? 'compare.full' : 'compare.pin')}</button>
        <button @click=${() => this.ask({ kind: 'pin_course' })}>${i18n.t('compare.course')}</button>
        ${request.pins.length > 0 ? html`<button @click=${() => this.ask({ kind: 'unpin', at: undefined })}>${i18n.t('compare.clear')}</button>` : nothing}
      </div>`;
  }

  private columns(): Column[] {
    const { request, i18n } = this;
    const pins = request.pins.map((pin, at) => ({ title: String.fromCharCode(65 + at), at, recipe: pin.recipe, model: modelName(pin.model, i18n), outcome: this.predicted(pin) }));
    return [...pins, { title: i18n.t('compare.now'), at: undefined, recipe: request.recipe, model: modelName(request.model, i18n), outcome: this.answer }];
  }

  private predicted(pin: Pin): Outcome<Report> {
    const key = pinKey(pin);
    const outcome = this.known.get(key) ?? this.core.predict(configText(pin.model), pin.recipe, 1);
    this.known.set(key, outcome);
    return outcome;
  }

  private table(columns: readonly Column[]): TemplateResult {
    const { i18n } = this;
    const of = (pick: (report: Report) => Bytes) => columns.map(({ outcome }) => (outcome.ok ? pick(outcome.value) : undefined));
    const used = CATEGORIES.filter((id) => columns.some(({ outcome }) => outcome.ok && (outcome.value.at_peak.categories[id] ?? 0) > 0));
    return html`<table>
      <caption class="visually-hidden">${i18n.t('compare.heading')}</caption>
      <thead><tr><td></td>${columns.map((column) => this.heading(column))}</tr></thead>
      <tbody>
        ${this.words(i18n.t('model.heading'), columns.map((column) => column.model))}
        ${this.keys(columns).map((key) => this.words(i18n.key(key), columns.map((column) => this.value(column, key))))}
        <tr><th scope="row">${i18n.t('verdict.heading')}</th>${columns.map(({ outcome }) => this.verdict(outcome))}</tr>
        ${this.amounts(i18n.t('figures.allocated'), of((report) => report.peaks.allocated_bytes), true)}
        ${this.amounts(i18n.t('figures.reserved'), of((report) => report.peaks.reserved_bytes), true)}
        ${used.map((id) => this.amounts(html`<span class="swatch c-${id}"></span>${i18n.category(id)}`, of((report) => report.at_peak.categories[id] ?? 0), false))}
        ${this.amounts(i18n.t('figures.tensor'), of((report) => report.at_peak.tensor_bytes + report.at_peak.workspace_bytes), true)}
      </tbody></table>`;
  }

  private heading({ title, at }: Column): TemplateResult {
    const { i18n } = this;
    if (at === undefined || this.fixed) return html`<th scope="col" class="right ${at === undefined ? 'now' : ''}">${title}</th>`;
    return html`<th scope="col" class="right">${title}<span class="pair">
      <button class="small" aria-label=${i18n.t('compare.open.this', { name: title })} @click=${() => this.ask({ kind: 'open_pin', at })}>${i18n.t('compare.open')}</button>
      <button class="small" aria-label=${i18n.t('compare.remove', { name: title })} @click=${() => this.ask({ kind: 'unpin', at })}>✕</button></span></th>`;
  }

  // Keys in which two columns differ; those that are the same everywhere say nothing here.
  private keys(columns: readonly Column[]): string[] {
    const all = this.core.catalogue.recipe_keys.map((key) => key.name);
    return all.filter((key) => new Set(columns.map((column) => this.value(column, key))).size > 1);
  }

  private value({ recipe }: Column, key: string): string {
    const value = recipe[key] ?? this.defaults[key];
    return value === undefined ? '' : writeValue(value);
  }

  private words(name: string, values: readonly string[]): TemplateResult {
    const now = values.at(-1);
    return html`<tr><th scope="row">${name}</th>${values.map((value) => html`<td class="right ${value === now ? '' : 'differs'}">${value}</td>`)}</tr>`;
  }

  private amounts(name: TemplateResult | string, values: readonly (Bytes | undefined)[], marked: boolean): TemplateResult {
    const { i18n } = this;
    const least = Math.min(...values.map((value) => value ?? Infinity));
    const now = values.at(-1);
    return html`<tr><th scope="row">${name}</th>${values.map((value) => html`<td class="right ${value === now ? '' : 'differs'} ${marked && value === least ? 'least' : ''}"
      title=${value === undefined ? '' : i18n.format.exact(value)}>${value === undefined ? '–' : i18n.bytes(value)}</td>`)}</tr>`;
  }

  private verdict(outcome: Outcome<Report>): TemplateResult {
    const { i18n } = this;
    if (!outcome.ok) return html`<td class="right">${i18n.t('compare.refused')}</td>`;
    const { answer, headroom_bytes: room } = outcome.value.verdict;
    return html`<td class="right ${answer}">${SIGN[answer]} ${i18n.t(`advice.answer.${answer}`)}<br /><span class="small">${i18n.format.difference(room)}</span></td>`;
  }
}
