// model_picker.ts - <ml-model-picker>: the model as a field that can be searched (the combobox of the ARIA practices). What
// is not known by name is offered to be read from the Hugging Face hub.

import { css, html, nothing, type TemplateResult } from 'lit';
import { customElement, property, state } from 'lit/decorators.js';
import { hubId } from '../state/hub.js';
import { familyOf, matching } from '../state/model_search.js';
import { loadPresets, PRESETS, type Preset } from '../state/presets.js';
import type { ModelChoice } from '../state/request.js';
import { base, controls } from '../styles/shared.js';
import { LedgerElement } from './base.js';
import { modelName } from './model_name.js';

type Option = { readonly preset: Preset } | { readonly hub: string };

@customElement('ml-model-picker')
export class ModelPicker extends LedgerElement {
  static override styles = [base, controls, css`
    :host { position: relative; }
    input { padding-inline-end: 2rem; text-overflow: ellipsis; }
    .arrow { position: absolute; inset-inline-end: 0.7rem; inset-block-start: 0.55rem; pointer-events: none; color: var(--ink-soft); }
    .list { position: absolute; z-index: 5; inset-inline: 0; inset-block-start: calc(100% + 2px); max-height: min(22rem, 60vh); margin: 0; overflow-y: auto; background: var(--raised);
      border: 1px solid var(--rule-strong); border-radius: 6px; box-shadow: 0 6px 20px rgb(0 0 0 / 0.18); }
    ul { padding: 0.25rem; list-style: none; }
    li { display: flex; justify-content: space-between; gap: 0.75rem; padding: 0.4rem 0.5rem; border-radius: 4px; cursor: pointer; font-size: 0.95rem; overflow-wrap: anywhere; }
    li[aria-selected='true'] { font-weight: 600; }
    li.active { background: var(--ink); color: var(--paper); forced-color-adjust: none; }
    li.active .soft { color: inherit; }
    .none { padding: 0.5rem 0.75rem; }
    :host([inline]) { display: inline-block; }
    :host([inline]) input { font: inherit; line-height: 1.4; width: auto; field-sizing: content; border: 0; border-bottom: 1px dashed var(--rule-strong); border-radius: 0; background: none; padding: 0; min-height: 1.5rem; }
    :host([inline]) .arrow { display: none; }
    :host([inline]) .list { inset-inline-end: auto; width: max-content; max-width: min(24rem, 88vw); font-family: var(--sans); line-height: 1.3; color: var(--ink); }
    @media (pointer: coarse) { li { padding-block: 0.7rem; } }
    @media print { .list, .arrow { display: none; } }
  `];

  static override shadowRootOptions: ShadowRootInit = { ...LedgerElement.shadowRootOptions, delegatesFocus: true };

  @property({ attribute: false }) model!: ModelChoice;
  @state() private presets: readonly Preset[] = PRESETS;
  @state() private typed: string | undefined; // undefined: the field shows the model's name
  @state() private open = false;
  @state() private active = -1;

  protected override render(): TemplateResult {
    const { i18n } = this;
    const options = this.open ? this.options() : [];
    return html`<input id="model-name" type="text" role="combobox" autocomplete="off" spellcheck="false" aria-label=${i18n.t('model.label')} aria-autocomplete="list"
        aria-expanded=${this.open} aria-controls="models" aria-activedescendant=${this.open && this.active >= 0 ? `m${this.active}` : nothing}
        size=${modelName(this.model, i18n).length} .value=${this.typed ?? modelName(this.model, i18n)}
        @focus=${this.onFocus} @blur=${this.close} @click=${this.show} @input=${this.onInput} @keydown=${this.onKey} />
      <span class="arrow" aria-hidden="true">▾</span>
      <ul id="models" class="list" role="listbox" aria-label=${i18n.t('model.label')} ?hidden=${options.length === 0} @pointerdown=${(event: Event) => event.preventDefault()}>
        ${options.map((option, at) => this.row(option, at))}</ul>
      ${this.open && options.length === 0 ? html`<p class="list none small soft">${i18n.t('model.none')}</p>` : nothing}
      <span class="visually-hidden" role="status">${this.open && this.typed !== undefined ? i18n.t('model.found', { count: String(options.length) }) : nothing}</span>`;
  }

  private row(option: Option, at: number): TemplateResult {
    const chosen = 'preset' in option && this.model.kind === 'preset' && this.model.id === option.preset.id;
    return html`<li id="m${at}" role="option" class=${at === this.active ? 'active' : ''} aria-selected=${chosen} @click=${() => this.choose(option)}>
      ${'hub' in option ? this.i18n.t('model.hub', { id: option.hub })
        : html`<span>${option.preset.name}</span><span class="soft small number">${this.i18n.format.short(option.preset.params)} ${familyOf(option.preset)}</span>`}</li>`;
  }

  private options(): Option[] {
    const text = this.typed ?? '';
    const found: Option[] = matching(this.presets, text).map((preset) => ({ preset }));
    const hub = hubId(text);
    return hub === undefined ? found : [...found, { hub }];
  }

  private onFocus(event: FocusEvent): void {
    (event.target as HTMLInputElement).select();
    loadPresets().then((presets) => { this.presets = presets; }, () => {}); // offline before they ever came: those of the page remain
  }

  private show(): void {
    if (this.open) return;
    this.open = true;
    const { model } = this;
    this.active = model.kind === 'preset' ? this.options().findIndex((option) => 'preset' in option && option.preset.id === model.id) : -1;
    this.reveal();
  }

  private readonly close = (): void => {
    this.open = false;
    this.typed = undefined;
    this.active = -1;
    const field = this.renderRoot.querySelector('input');
    if (field) field.value = modelName(this.model, this.i18n); // also where the last value drawn was the same
  };

  private onInput(event: InputEvent): void {
    this.typed = (event.target as HTMLInputElement).value;
    this.open = true;
    this.active = this.typed.trim() !== '' && this.options().length > 0 ? 0 : -1;
    this.reveal();
  }

  private onKey(event: KeyboardEvent): void {
    if (event.isComposing) return;
    const move = { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8 }[event.key];
    if (move !== undefined) {
      event.preventDefault();
      if (!this.open) return this.show();
      const { length } = this.options();
      if (length > 0) this.active = this.active < 0 ? (move > 0 ? 0 : length - 1) : Math.min(length - 1, Math.max(0, this.active + move));
      this.reveal();
    } else if (event.key === 'Enter' && this.open) {
      event.preventDefault();
      const option = this.options()[this.active];
      if (option) this.choose(option);
    } else if (event.key === 'Escape' && this.open) {
      event.stopPropagation();
      this.close();
    }
  }

  private reveal(): void {
    void this.updateComplete.then(() => this.renderRoot.querySelector('.active')?.scrollIntoView({ block: 'nearest' }));
  }

  private choose(option: Option): void {
    this.close();
    if ('preset' in option) this.ask({ kind: 'preset', id: option.preset.id });
    else this.ask({ kind: 'text', text: option.hub, name: '' });
  }
}
