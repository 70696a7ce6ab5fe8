// question_view.ts - <ml-question>: the question as one sentence whose parts are edited where they stand.
//
// Each part asks for the same changes as its field in the form; what is shown is the request's. It stands above the answer whether
// or not there is one, so that a value that the core refuses can be changed again without looking for it.

import { css, html, type TemplateResult } from 'lit';
import { customElement, property, state } from 'lit/decorators.js';
import type { Catalogue, Problem, Recipe, RecipeKey } from '../core/types.js';
import { gpusOf, partText, questionParts, type Asked } from '../format/question.js';
import type { Refused } from '../state/availability.js';
import { readValue, sameValue, writeValue, type ModelChoice } from '../state/request.js';
import { base } from '../styles/shared.js';
import { LedgerElement } from './base.js';
import { isNamed, options, shortName, stepped } from './choices.js';
import { modelName } from './model_name.js';
import './model_picker.js';

@customElement('ml-question')
export class QuestionView extends LedgerElement {
  static override styles = [base, css`
    p { margin: 0 0 1rem; font: 400 1.15rem/1.75 var(--serif); color: var(--ink-soft); }
    .part { position: relative; display: inline-block; max-width: 100%; line-height: 1.4; color: var(--ink); }
    .part, input { border: 0; border-bottom: 1px dashed var(--rule-strong); }
    .part::after { content: ' ▾' / ''; font-size: 0.7em; color: var(--ink-soft); }
    .part:hover, input:hover { color: var(--accent); }
    .part:has(:focus-visible) { outline: 2px solid var(--accent); outline-offset: 2px; border-radius: 3px; }
    select { position: absolute; inset: 0; width: 100%; height: 100%; opacity: 0; font-size: 16px; cursor: pointer; }
    input { font: inherit; line-height: 1.4; color: var(--ink); background: none; padding: 0; margin: 0; min-height: 1.5rem; border-radius: 0; }
    input { appearance: textfield; text-align: center; width: 6ch; }
    input::-webkit-inner-spin-button { appearance: none; margin: 0; }
    @supports (field-sizing: content) { input { width: auto; min-width: 2ch; field-sizing: content; } }
    [aria-invalid='true'], .part:has([aria-invalid='true']) { color: var(--bad); }
    @media (pointer: coarse) { p { line-height: 2.1; } input { min-height: 2rem; min-width: 2rem; } }
    @media print { .part, input { border: 0; } .part::after { content: none; } }
  `];

  @property({ attribute: false }) catalogue!: Catalogue;
  @property({ attribute: false }) recipe!: Recipe; // every key
  @property({ attribute: false }) model!: ModelChoice;
  @property({ attribute: false }) plain = false;
  @property({ attribute: false }) refused: Refused = new Map();
  @property({ attribute: false }) problem: Problem | undefined;
  @state() private unread: string | undefined; // the part that holds text which is no value

  protected override render(): TemplateResult {
    const { i18n, recipe, plain } = this;
    const gpu = this.catalogue.gpus.find(({ id }) => id === recipe['gpu']);
    const asked = { recipe, plain, modelName: modelName(this.model, i18n), gpuName: shortName(gpu?.name ?? String(recipe['gpu'])) };
    return html`<p role="group" aria-label=${i18n.t('question.label')}>${questionParts(asked, i18n).map((part, at) => (at % 2 === 0 ? part : this.control(part, asked)))}</p>`;
  }

  private control(part: string, asked: Asked): TemplateResult {
    const key = this.catalogue.recipe_keys.find(({ name }) => name === part);
    if (!key) return html`<ml-model-picker inline .i18n=${this.i18n} .model=${this.model}></ml-model-picker>`;
    if (part === 'dp' && gpusOf(this.recipe) !== this.recipe['dp']) return html`${partText(part, asked, this.i18n)}`; // a plan's product: its keys are the form's
    return key.kind === 'integer' ? this.number(key) : this.choice(key, partText(part, asked, this.i18n));
  }

  // The words are drawn, the list of the browser's own lies over them.
  private choice(key: RecipeKey, text: string): TemplateResult {
    return html`<span class="part"><span aria-hidden="true">${text}</span><select id="q-${key.name}" aria-label=${this.i18n.key(key.name)} aria-invalid=${this.isWrong(key) ? 'true' : 'false'}
      @change=${(event: Event) => this.changed(key, event)}>${options(key, this.recipe[key.name] ?? '', this.catalogue, this.refused, this.i18n)}</select></span>`;
  }

  private number(key: RecipeKey): TemplateResult {
    const label = key.name === 'dp' ? this.i18n.t('question.gpus') : this.i18n.key(key.name);
    return html`<input id="q-${key.name}" type="number" inputmode="numeric" min=${key.low ?? 1} aria-label=${label}
      aria-invalid=${this.isWrong(key) ? 'true' : 'false'} .value=${writeValue(this.recipe[key.name] ?? '')} @input=${(event: Event) => this.changed(key, event)} @keydown=${(event: KeyboardEvent) => this.onKey(key, event)} @blur=${(event: Event) => this.left(key, event)} />`;
  }

  private isWrong(key: RecipeKey): boolean {
    return this.unread === key.name || isNamed(key, this.problem);
  }

  private changed(key: RecipeKey, event: Event): void {
    const { value: text } = event.target as HTMLInputElement | HTMLSelectElement;
    const value = key.name === 'gpu' ? text : readValue(key, text);
    this.unread = value === undefined ? key.name : undefined;
    if (value !== undefined && !sameValue(value, this.recipe[key.name])) this.ask({ kind: 'recipe', patch: { [key.name]: value } });
  }

  private onKey(key: RecipeKey, event: KeyboardEvent): void {
    const next = stepped(key, Number(this.recipe[key.name]), event);
    if (next === undefined) return;
    event.preventDefault();
    const value = readValue(key, next);
    if (value !== undefined) this.ask({ kind: 'recipe', patch: { [key.name]: value } });
  }

  // What was typed and is no value is gone with the focus.
  private left(key: RecipeKey, event: Event): void {
    if (this.unread !== key.name) return;
    this.unread = undefined;
    (event.target as HTMLInputElement).value = writeValue(this.recipe[key.name] ?? '');
  }
}
