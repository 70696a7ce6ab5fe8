// model_box.ts - <ml-model-box>: which model; and one box that takes any file or text the page can read.

import { css, html, nothing, type TemplateResult } from 'lit';
import { customElement, property } from 'lit/decorators.js';
import type { Model, Problem } from '../core/types.js';
import { findPreset } from '../state/presets.js';
import type { ModelChoice } from '../state/request.js';
import { base, controls } from '../styles/shared.js';
import { LedgerElement } from './base.js';
import './model_picker.js';
import './problem_note.js';

export type BoxMessage = { readonly text: string } | { readonly problem: Problem };

@customElement('ml-model-box')
export class ModelBox extends LedgerElement {
  static override styles = [base, controls, css`
    .facts { margin: 0.4rem 0 1rem; min-height: 1lh; }
    .box { border: 1px dashed var(--rule-strong); border-radius: 8px; padding: 0.7rem; background: var(--raised); }
    .box label { display: block; color: var(--ink); font-weight: 500; font-size: 0.9rem; }
    .hint { margin: 0.1rem 0 0.5rem; }
    .row { display: grid; grid-template-columns: 1fr auto; gap: 0.5rem; align-items: stretch; }
    textarea { font: 0.85rem/1.4 var(--mono); resize: vertical; height: 2.4rem; min-height: 2.4rem; padding-block: 0.5rem; }
    .message { margin-top: 0.6rem; font-size: 0.9rem; }
    .message p { margin: 0; padding: 0.5rem 0.75rem; background: var(--good-tint); border-inline-start: 3px solid var(--good); border-radius: 0 6px 6px 0; overflow-wrap: anywhere; }
    .lines { white-space: pre-line; }
    @media (pointer: coarse) { textarea { font-size: 16px; } }
    @media print { .box { display: none; } }
  `];

  @property({ attribute: false }) model!: ModelChoice;
  @property({ attribute: false }) facts: Model | undefined;
  @property({ attribute: false }) message: BoxMessage | undefined;

  protected override render(): TemplateResult {
    const { i18n, model } = this;
    return html`<h2>${i18n.t('model.heading')}</h2>
      <ml-model-picker id="model" .i18n=${i18n} .model=${model}></ml-model-picker>
      <p class="facts small soft">${this.factsText()}</p>
      <div class="box">
        <label for="paste">${i18n.t('box.label')}</label>
        <p class="hint small soft" id="hint">${i18n.t('box.hint')}</p>
        <div class="row">
          <textarea id="paste" rows="1" aria-describedby="hint" spellcheck="false" autocomplete="off" placeholder=${i18n.t('box.placeholder')} @input=${this.onText} @keydown=${this.onKey}></textarea>
          <button @click=${this.choose}>${i18n.t('box.choose')}</button>
          <input type="file" hidden accept=".json,.yaml,.yml,.toml,.sh,.txt,.log,application/json,text/plain" @change=${this.onFile} />
        </div>
      </div>
      <div class="message" role="status">${this.messageView()}</div>`;
  }

  private factsText(): TemplateResult {
    const source = this.model.kind === 'preset' ? findPreset(this.model.id)?.source ?? '' : '';
    if (!this.facts) return html``;
    const { params, trainable, family } = this.facts;
    const { format } = this.i18n;
    const key = trainable === params ? 'model.facts' : 'model.facts.trainable';
    const text = this.i18n.t(key, { params: format.count(params), trainable: format.count(trainable), family });
    return html`<span title=${source ? this.i18n.t('model.source', { source }) : ''}>${text}</span>`;
  }

  private messageView(): TemplateResult | typeof nothing {
    if (!this.message) return nothing;
    if ('problem' in this.message) return html`<ml-problem .i18n=${this.i18n} .problem=${this.message.problem}></ml-problem>`;
    return html`<p class="lines">${this.message.text}</p>`;
  }

  // The box reads what is put in and is then empty again: what counts is the message below it.
  private onText(event: InputEvent): void {
    const box = event.target as HTMLTextAreaElement;
    const text = box.value;
    if (event.isComposing || !(event.inputType === 'insertFromPaste' || event.inputType === 'insertFromDrop' || isWhole(text))) return;
    box.value = '';
    if (text.trim() !== '') this.ask({ kind: 'text', text, name: '' });
  }

  // Enter hands over what was typed, e.g. a model's name on the hub; not while a word is being composed.
  private onKey(event: KeyboardEvent): void {
    const box = event.target as HTMLTextAreaElement;
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing || box.value.trim() === '') return;
    event.preventDefault();
    this.ask({ kind: 'text', text: box.value, name: '' });
    box.value = '';
  }

  private choose(): void {
    this.renderRoot.querySelector<HTMLInputElement>('input[type=file]')?.click();
  }

  private onFile(event: Event): void {
    const input = event.target as HTMLInputElement;
    for (const file of input.files ?? []) this.ask({ kind: 'file', file });
    input.value = ''; // so that the same file can be chosen again
  }
}

// Typed by hand: wait until it is complete JSON.
function isWhole(text: string): boolean {
  try {
    return typeof JSON.parse(text) === 'object';
  } catch {
    return false; // still being typed
  }
}
