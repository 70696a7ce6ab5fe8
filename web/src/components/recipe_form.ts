// recipe_form.ts - <ml-recipe-form>: one field a recipe key, built from the core's catalogue.
//
// Fields are created once and never rebuilt while typing; a field that cannot be read keeps its text and says why.

import { css, html, nothing, type PropertyValues, type TemplateResult } from 'lit';
import { customElement, property, state } from 'lit/decorators.js';
import type { Catalogue, Problem, Recipe, RecipeKey, RecipeValue } from '../core/types.js';
import type { Refused } from '../state/availability.js';
import { isUsed, keysOf, type Group } from '../state/form_keys.js';
import { expectedOf, readValue, sameValue, writeValue, type Defaults } from '../state/request.js';
import { base, controls } from '../styles/shared.js';
import { LedgerElement } from './base.js';
import { isNamed, marked, options, stepped } from './choices.js';
import { drawn } from './drawn.js';
import './problem_note.js';

const WIDE = ['gpu', 'optimizer', 'targets', 'memory_limit_bytes'];

@customElement('ml-recipe-form')
export class RecipeForm extends LedgerElement {
  static override styles = [base, controls, css`
    .grid { display: grid; grid-template-columns: 1fr 1fr; gap: 0.7rem 0.8rem; }
    .field { min-width: 0; display: flex; flex-direction: column; gap: 0.2rem; justify-content: end; }
    .field.wide { grid-column: 1 / -1; }
    .field.flag { flex-direction: row; align-items: center; justify-content: start; gap: 0.5rem; }
    .field.flag label { color: var(--ink); font-size: 0.9rem; overflow-wrap: anywhere; }
    .error { margin: 0; font-size: 0.82rem; color: var(--bad); }
    .head { display: flex; justify-content: space-between; align-items: baseline; gap: 1rem; }
    fieldset { border: 0; border-top: 1px solid var(--rule); margin: 1rem 0 0; padding: 0.6rem 0 0; min-width: 0; }
    legend { float: inline-start; width: 100%; padding: 0; margin-bottom: 0.5rem; font-size: 0.9rem; font-weight: 600; }
    legend + .grid { clear: both; }
    details { border-top: 1px solid var(--rule); margin-top: 1rem; padding-top: 0.25rem; }
    details + details { margin-top: 0.5rem; }
    details .grid { margin: 0.5rem 0; }
    ml-problem { margin-top: 0.9rem; }
    .help { margin: 0.9rem 0 0; min-height: 4.6rem; border-top: 1px solid var(--rule); padding-top: 0.6rem; }
    .help b { font-weight: 600; }
    @media print { .help { display: none; } }
  `];

  @property({ attribute: false }) catalogue!: Catalogue;
  @property({ attribute: false }) recipe!: Recipe;
  @property({ attribute: false }) defaults!: Defaults;
  @property({ attribute: false }) problem: Problem | undefined;
  @property({ attribute: false }) plain = false; // the model is a stack of plain layers
  @property({ attribute: false }) images = false; // the model sees images
  @property({ attribute: false }) refused: Refused = new Map();
  @property({ attribute: false }) canUndo = false;
  @state() private invalid: ReadonlySet<string> = new Set();
  @state() private unfolded = false; // what is folded is drawn after the rest
  @state() private help: { readonly name: string; readonly text: string; readonly url: string | undefined } | undefined;

  protected override willUpdate(changed: PropertyValues): void {
    if (changed.has('i18n') && (changed.get('i18n') as { lang: string } | undefined)?.lang !== this.i18n.lang) this.help = undefined;
  }

  protected override firstUpdated(): void {
    void drawn().then(() => { this.unfolded = true; });
  }

  protected override render(): TemplateResult {
    const { i18n } = this;
    const adapter = this.keys('adapter');
    return html`<div @focusin=${this.onFocus}><div class="head"><h2>${i18n.t('form.heading')}</h2>
        ${Object.keys(this.recipe).length > 0 ? html`<button class="quiet" @click=${this.reset}>${i18n.t('form.reset')}</button>` : nothing}</div>
      <div class="grid">${this.keys('main').map((key) => this.field(key))}</div>
      ${adapter.length > 0 ? html`<fieldset><legend>${i18n.t('form.adapter')}</legend><div class="grid">${adapter.map((key) => this.field(key))}</div></fieldset>` : nothing}
      ${this.folded('more')}
      ${this.folded('gpus')}</div>
      <p class="help small" id="help">${this.help ? html`<b>${i18n.key(this.help.name)}</b> ${this.help.text}
        ${this.help.url ? html`<a href=${this.help.url} target="_blank" rel="noopener">${i18n.t('form.docs')}</a>` : nothing}${this.help.name === 'gpu' ? this.cardSource() : nothing}` : html`<span class="soft">${i18n.t('form.help')}</span>`}</p>
      <div role="status">${this.problem ? this.problemView(this.problem) : nothing}</div>`;
  }

  // Where the capacity of the chosen card was seen.
  private cardSource(): TemplateResult | typeof nothing {
    const source = this.catalogue.gpus.find((gpu) => gpu.id === (this.recipe['gpu'] ?? this.defaults['gpu']))?.source;
    if (!source) return nothing;
    const issue = /^([\w.-]+\/[\w.-]+)#(\d+)$/.exec(source);
    return html` · ${this.i18n.t('form.capacity')} ${issue ? html`<a href="https://github.com/${issue[1]}/issues/${issue[2]}" target="_blank" rel="noopener">${source}</a>` : source}`;
  }

  // In a place of its own, so that no field moves under the pointer.
  private async onFocus(event: FocusEvent): Promise<void> {
    const name = (event.target as HTMLElement).id;
    if (!this.catalogue.recipe_keys.some((key) => key.name === name) || this.help?.name === name) return;
    try {
      const { keyHelp } = await import('./key_help.js');
      const found = await keyHelp(name, this.i18n.lang);
      if (found) this.help = { name, ...found };
    } catch {
      this.help = undefined; // offline before it was ever loaded: fields work without it
    }
  }

  // What the recipe makes use of, and what a problem names, so that it can be mended.
  private keys(group: Group): RecipeKey[] {
    const recipe = { ...this.defaults, ...this.recipe };
    return keysOf(group, this.catalogue.recipe_keys).filter((key) => isUsed(key.name, recipe, this.plain, this.images) || this.named(key));
  }

  private folded(group: 'more' | 'gpus'): TemplateResult {
    const keys = this.keys(group);
    const open = keys.some((key) => key.name in this.recipe || this.named(key));
    const missing = group === 'gpus' && this.refused.has('dp=2');
    return html`<details class=${group} ?open=${open}><summary>${this.i18n.t(`form.${group}`)}</summary>
      ${missing ? html`<p class="small soft">${this.i18n.t('form.gpus.missing')}</p>` : nothing}
      ${open || this.unfolded ? html`<div class="grid">${keys.map((key) => this.field(key))}</div>` : nothing}</details>`;
  }

  private problemView(problem: Problem): TemplateResult {
    return html`<ml-problem .i18n=${this.i18n} .problem=${problem}></ml-problem>
      ${this.canUndo ? html`<button class="quiet" @click=${() => this.ask({ kind: 'undo' })}>${this.i18n.t('form.undo')}</button>` : nothing}`;
  }

  private reset(): void {
    for (const name of this.invalid) {
      const field = this.renderRoot.querySelector<HTMLInputElement>(`[id="${name}"]`);
      if (field) field.value = writeValue(this.defaults[name] ?? ''); // it holds text that never became a value
    }
    this.invalid = new Set();
    this.ask({ kind: 'reset' });
  }

  private value(key: RecipeKey): RecipeValue {
    return this.recipe[key.name] ?? this.defaults[key.name] ?? '';
  }

  private named(key: RecipeKey): boolean {
    return isNamed(key, this.problem);
  }

  private field(key: RecipeKey): TemplateResult {
    const wide = WIDE.includes(key.name);
    if (key.kind === 'flag') return html`<div class="field flag wide">${this.checkbox(key)}<label for=${key.name}>${marked(this.refused, key.name, 'true', this.i18n.key(key.name), this.i18n)}</label></div>`;
    const bad = this.invalid.has(key.name);
    return html`<div class="field ${wide ? 'wide' : ''}">
      <label for=${key.name}>${this.i18n.key(key.name)}</label>
      ${key.name === 'gpu' || key.kind === 'choice' ? this.choice(key) : this.input(key, bad)}
      ${bad ? html`<p class="error" id="${key.name}-error">${this.errorText(key)}</p>` : nothing}
    </div>`;
  }

  private errorText(key: RecipeKey): string {
    const expected = expectedOf(key).replace('..', this.i18n.lang === 'zh' ? ' 至 ' : ' to ');
    return this.i18n.t(key.kind === 'integer' ? 'form.invalid' : 'form.invalid.text', { expected });
  }

  private choice(key: RecipeKey): TemplateResult {
    return html`<select id=${key.name} aria-invalid=${this.named(key) ? 'true' : 'false'} @change=${(event: Event) => this.changed(key, event)}>
      ${options(key, this.value(key), this.catalogue, this.refused, this.i18n)}
    </select>`;
  }

  private checkbox(key: RecipeKey): TemplateResult {
    return html`<input type="checkbox" id=${key.name} aria-invalid=${this.named(key) ? 'true' : 'false'} .checked=${this.value(key) === true}
      @change=${(event: Event) => this.ask({ kind: 'recipe', patch: { [key.name]: (event.target as HTMLInputElement).checked } })} />`;
  }

  private input(key: RecipeKey, bad: boolean): TemplateResult {
    const numeric = key.kind === 'integer' || key.kind === 'real';
    return html`<input id=${key.name} type=${numeric ? 'number' : 'text'} inputmode=${key.kind === 'integer' ? 'numeric' : numeric ? 'decimal' : 'text'}
      min=${key.low ?? nothing} step=${key.kind === 'integer' ? 1 : 'any'} autocomplete="off" spellcheck="false"
      aria-invalid=${bad || this.named(key) ? 'true' : 'false'} aria-describedby=${bad ? `${key.name}-error` : nothing}
      .value=${writeValue(this.value(key))} @input=${(event: Event) => this.changed(key, event)} @keydown=${(event: KeyboardEvent) => this.stepped(key, event)} />`;
  }

  private changed(key: RecipeKey, event: Event): void {
    const text = (event.target as HTMLInputElement | HTMLSelectElement).value;
    const value = key.name === 'gpu' ? text : readValue(key, text);
    const invalid = new Set(this.invalid);
    if (value === undefined) invalid.add(key.name);
    else invalid.delete(key.name);
    this.invalid = invalid;
    if (value !== undefined && !sameValue(value, this.value(key))) this.ask({ kind: 'recipe', patch: { [key.name]: value } });
  }

  private stepped(key: RecipeKey, event: KeyboardEvent): void {
    const next = stepped(key, Number(this.value(key)), event);
    if (next === undefined) return;
    event.preventDefault();
    const value = readValue(key, next);
    if (value !== undefined) this.ask({ kind: 'recipe', patch: { [key.name]: value } });
  }
}
