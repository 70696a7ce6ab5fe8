// figure.ts - the parent of the course's figures: the lab to ask, the language to speak, and the pieces they share.

import { css, html, type TemplateResult } from 'lit';
import { property, state } from 'lit/decorators.js';
import { LedgerElement } from '../components/base.js';
import { digits } from '../format/format.js';
import { base, categories, controls, tables } from '../styles/shared.js';
import type { Recipe, Report } from '../core/types.js';
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
  @state() private failure: unknown;
  private lastSaid: TemplateResult | undefined; // of steps
  private waiting: Promise<unknown> | undefined; // for steps

  protected abstract figure(): TemplateResult;

  // Drawn, and nothing in it is still to be answered.
  async whole(): Promise<void> {
    do {
      await this.waiting;
      await this.updateComplete;
    } while (this.waiting);
  }

  // What is said of real steps, once they are traced; until then what was said last.
  protected ofSteps(asked: readonly (readonly [config: object, recipe: Recipe])[], say: (...reports: readonly Report[]) => TemplateResult): TemplateResult {
    const answers = asked.map(([config, recipe]) => this.lab.predict(config, recipe));
    const missing = answers.filter((answer) => answer instanceof Promise);
    if (missing.length === 0) return (this.lastSaid = say(...(answers as Report[])));
    const waiting = Promise.all(missing).catch((error: unknown) => { this.failure = error; }).then(() => {
      if (this.waiting !== waiting) return; // asked anew meanwhile
      this.waiting = undefined;
      this.requestUpdate();
    });
    this.waiting = waiting;
    return this.lastSaid ?? html`<p class="note" aria-busy="true">${this.i18n.t('course.tracing')}</p>`;
  }

  protected override render(): TemplateResult {
    try {
      if (this.failure !== undefined) throw this.failure;
      return this.figure();
    } catch (error) {
      return html`<p role="alert">${this.i18n.t('course.broken', { read: String(error) })}</p>`;
    }
  }

  protected gb(bytes: number, decimals = 1): string {
    return `${digits(bytes / 1e9, decimals)} GB`;
  }

  protected gib(bytes: number, decimals = 1): string {
    return `${digits(bytes / 2 ** 30, decimals)} GiB`;
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

export const powers = (from: number, to: number): number[] => Array.from({ length: to - from + 1 }, (_, i) => 2 ** (from + i));
