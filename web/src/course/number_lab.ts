// number_lab.ts - <ml-number-lab>: a number in any format, as bits to flip, with its neighbours and the format's range.

import { css, html, nothing, type TemplateResult } from 'lit';
import { customElement, state } from 'lit/decorators.js';
import { Figure, figureStyles } from './figure.js';
import type { FormatRow, Stored } from './lesson_types.js';
import { numberText, power } from './number_text.js';

@customElement('ml-number-lab')
export class NumberLab extends Figure {
  static override styles = [...figureStyles, css`
    .bits { display: flex; flex-wrap: wrap; gap: 0.35rem 0.6rem; margin: 1rem 0 0.75rem; }
    .field { display: grid; gap: 0.25rem; }
    .field > span { font-size: 0.8rem; color: var(--ink-soft); }
    .row { display: flex; flex-wrap: wrap; gap: 2px; }
    .row button { font: 600 0.95rem/1 var(--mono); min-width: 1.6rem; min-height: 2.1rem; padding: 0; border-color: var(--tone); color: var(--ink); background: var(--raised); border-radius: 3px; }
    .row button[aria-checked='true'] { background: var(--tone); color: var(--c-text); }
    .sign { --tone: var(--c-logits); } .exponent { --tone: var(--c-weights); } .mantissa { --tone: var(--c-activations); }
    dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr)); gap: 0.75rem 1.5rem; margin: 1rem 0 0; }
    dl > div { border-top: 1px solid var(--rule); padding-top: 0.35rem; }
    dt { font-size: 0.82rem; color: var(--ink-soft); }
    dd { margin: 0; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
    .value { font: 500 1.35rem/1.3 var(--mono); }
    .steps { display: flex; gap: 0.4rem; align-items: end; }
    input.number { width: 13rem; font-family: var(--mono); }
    @media (pointer: coarse) { .row button { min-width: 1.75rem; } }
  `];

  @state() private format = 'bf16';
  @state() private asked: { value: number } | { bits: number } = { value: 1.00001 };
  @state() private text = '1.00001';
  @state() private bad = false;

  protected override figure(): TemplateResult {
    const { i18n } = this;
    const format = this.lab.formats.find(({ name }) => name === this.format) as FormatRow;
    const stored = this.lab.stored(this.format, this.asked);
    return html`${this.choices('c22.format', this.lab.formats.map(({ name }) => name), this.format, (name) => name, (name) => this.change(name))}
      <div class="bits">${this.fields(format, stored)}</div>
      <div class="controls">
        <label>${i18n.t('c22.value')}<input class="number" inputmode="decimal" autocomplete="off" spellcheck="false" .value=${this.text} aria-invalid=${this.bad ? 'true' : 'false'} @input=${this.typed} /></label>
        <span class="steps">
          <button ?disabled=${stored.below === null} @click=${() => this.show({ value: stored.below ?? 0 })}>${i18n.t('c22.below')}</button>
          <button ?disabled=${stored.above === null} @click=${() => this.show({ value: stored.above ?? 0 })}>${i18n.t('c22.above')}</button>
        </span>
      </div>
      <div role="status">${this.facts(format, stored)}</div>`;
  }

  private fields(format: FormatRow, stored: Stored): TemplateResult[] {
    const { i18n } = this;
    const parts = [['sign', format.sign_bits], ['exponent', format.exponent_bits], ['mantissa', format.mantissa_bits]] as const;
    let left = format.sign_bits + format.exponent_bits + format.mantissa_bits;
    return parts.filter(([, count]) => count > 0).map(([id, count]) => {
      const name = i18n.t(format.exponent_bits === 0 ? 'c22.code' : `c22.${id}`);
      const buttons = Array.from({ length: count }, () => this.bit(--left, stored.bits, name));
      return html`<div class="field ${id}" role="group" aria-label=${name}><span>${name} (${count})</span><span class="row">${buttons}</span></div>`;
    });
  }

  private bit(place: number, bits: number, field: string): TemplateResult {
    const set = Math.floor(bits / 2 ** place) % 2 === 1;
    return html`<button role="switch" aria-checked=${set ? 'true' : 'false'} aria-label=${this.i18n.t('c22.bit', { place, field })}
      @click=${() => this.show({ bits: bits + (set ? -1 : 1) * 2 ** place })}>${set ? 1 : 0}</button>`;
  }

  private facts(format: FormatRow, stored: Stored): TemplateResult {
    const { i18n } = this;
    const row = (name: string, value: string, large = false): TemplateResult => html`<div><dt>${name}</dt><dd class=${large ? 'value' : ''}>${value}</dd></div>`;
    const number = (value: number | null): string => numberText(value, '–');
    const error = stored.error !== null && stored.error !== 0 ? row(i18n.t('c22.error'), number(Number(stored.error.toPrecision(4)))) : nothing;
    return html`<dl>
      ${row(i18n.t('c22.stored'), this.valueText(stored), true)}${error}
      ${row(i18n.t('c22.class'), i18n.t(`c22.${stored.class}`))}
      ${row(i18n.t('c22.below.is'), number(stored.below))}${row(i18n.t('c22.above.is'), number(stored.above))}
      ${stored.ulp > 0 ? row(i18n.t('c22.ulp'), power(stored.ulp)) : nothing}
      ${row(i18n.t('c22.largest'), number(format.largest))}${row(i18n.t('c22.smallest'), power(format.smallest))}
      ${format.epsilon > 0 ? row(i18n.t('c22.epsilon'), power(format.epsilon)) : nothing}
      ${row(i18n.t('c22.memory'), i18n.t('c22.bits', { n: format.stored_bits }))}</dl>`;
  }

  private valueText({ class: kind, value, negative }: Stored): string {
    if (kind === 'nan') return 'NaN';
    if (kind === 'infinity') return negative ? '−∞' : '∞';
    return numberText(value, '–');
  }

  // The value stays what was asked for; the other format rounds it anew.
  private change(format: string): void {
    const { asked, value } = this.lab.stored(this.format, this.asked);
    this.format = format;
    this.asked = { value: ('value' in this.asked ? asked : value) ?? 0 };
    this.text = String(this.asked.value);
  }

  private show(asked: { value: number } | { bits: number }): void {
    this.asked = asked;
    this.text = String(this.lab.stored(this.format, asked).value ?? '');
    this.bad = false;
  }

  private readonly typed = (event: Event): void => {
    this.text = (event.target as HTMLInputElement).value;
    const value = Number(this.text.replace('−', '-'));
    this.bad = this.text.trim() === '' || !Number.isFinite(value);
    if (!this.bad) this.asked = { value };
  };
}
