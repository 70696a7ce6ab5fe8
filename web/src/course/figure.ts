// figure.ts - the parent of the course's figures: the lab to ask, the language to speak, and the pieces they share.

import { css, html, type TemplateResult } from 'lit';
import { property } from 'lit/decorators.js';
import { LedgerElement } from '../components/base.js';
import { base, categories, controls, tables } from '../styles/shared.js';
import type { Key } from '../i18n/i18n.js';
import type { Lab } from './lab.js';

export const figureStyles = [base, controls, tables, categories, css`
  .controls { display: flex; flex-wrap: wrap; gap: 0.75rem 1.25rem; align-items: end; margin: 0 0 1rem; }
  .controls > label { display: grid; gap: 0.2rem; min-width: 8rem; }
  .controls output { font-variant-numeric: tabular-nums; color: var(--ink); }
  input[type='range'] { padding: 0; accent-color: var(--accent); border: 0; background: none; }
  .choices { display: flex; flex-wrap: wrap; gap: 0.4rem; margin-bottom: 0.9rem; }
  .controls .choices { margin: 0; }
  .said { margin: 0.9rem 0 0; max-width: 46rem; }
  .said b { font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
  .said + .controls { margin-top: 1.25rem; }
  label > input[type='checkbox'] { justify-self: start; }
  .yes { color: var(--good); } .no { color: var(--bad); }
  .note { font-size: 0.875rem; color: var(--ink-soft); margin: 0.6rem 0 0; max-width: 46rem; }
  @media print { input[type='range'] { display: none; } select { appearance: none; border: 0; padding: 0; font-weight: 600; } }
`];

export abstract class Figure extends LedgerElement {
  static override styles = figureStyles;

  @property({ attribute: false }) lab!: Lab;

  protected abstract figure(): TemplateResult;

  protected override render(): TemplateResult {
    try {
      return this.figure();
    } catch (error) {
      return html`<p role="alert">${this.i18n.t('course.broken', { read: String(error) })}</p>`;
    }
  }

  protected gb(bytes: number, digits = 1): string {
    return quantity(bytes / 1e9, digits, 'GB', this.i18n.lang);
  }

  protected gib(bytes: number, digits = 1): string {
    return quantity(bytes / 2 ** 30, digits, 'GiB', this.i18n.lang);
  }

  protected select<T extends string>(label: Key, values: readonly T[], value: T, name: (value: T) => string, set: (value: T) => void): TemplateResult {
    return html`<label>${this.i18n.t(label)}<select @change=${(event: Event) => set((event.target as HTMLSelectElement).value as T)}>
      ${values.map((each) => html`<option value=${each} ?selected=${each === value}>${name(each)}</option>`)}</select></label>`;
  }

  // A slider over a list: powers of two, mostly.
  protected slider<T>(label: Key, values: readonly T[], value: T, name: (value: T) => string, set: (value: T) => void): TemplateResult {
    const at = Math.max(values.indexOf(value), 0);
    return html`<label><span>${this.i18n.t(label)}: <output>${name(value)}</output></span>
      <input type="range" min="0" max=${values.length - 1} .value=${String(at)} aria-valuetext=${name(value)}
        @input=${(event: Event) => set(values[Number((event.target as HTMLInputElement).value)] as T)} /></label>`;
  }

  protected choices<T extends string>(label: Key, values: readonly T[], value: T, name: (value: T) => string, set: (value: T) => void): TemplateResult {
    return html`<div class="choices" role="group" aria-label=${this.i18n.t(label)}>${values.map((each) => html`
      <button aria-pressed=${each === value ? 'true' : 'false'} @click=${() => set(each)}>${name(each)}</button>`)}</div>`;
  }

  // A sentence whose {values} stand out.
  protected said(key: Key, values: Readonly<Record<string, string | number>>): TemplateResult {
    const marked = Object.fromEntries(Object.keys(values).map((name) => [name, `\0${name}\0`]));
    const parts = this.i18n.t(key, marked).split('\0');
    return html`<p class="said" role="status">${parts.map((part, i) => (i % 2 === 0 ? part : html`<b>${values[part]}</b>`))}</p>`;
  }
}

function quantity(value: number, digits: number, unit: string, lang: string): string {
  const text = new Intl.NumberFormat(lang === 'zh' ? 'zh-Hans' : 'en', { minimumFractionDigits: digits, maximumFractionDigits: digits }).format(value);
  return `${text} ${unit}`;
}

export const powers = (from: number, to: number): number[] => Array.from({ length: to - from + 1 }, (_, i) => 2 ** (from + i));
