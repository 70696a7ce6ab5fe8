// advice_view.ts - <ml-advice>: what would help. Single changes that lower the peak, what each costs, applied by one
// click; and what is the most that fits. Asks in a worker (core/apart.ts) and shows what it is told.

import { css, html, nothing, type PropertyValues, type TemplateResult } from 'lit';
import { customElement, property, state } from 'lit/decorators.js';
import type { About, Advice, AdvisedChange, Changes, Solution } from '../core/advice.js';
import { adviceApart } from '../core/apart.js';
import type { Core } from '../core/loader.js';
import type { Answer, Recipe, Report } from '../core/types.js';
import { ADVICE_SOURCES } from '../state/advice_sources.js';
import { Helper } from '../state/helper.js';
import { sameValue } from '../state/request.js';
import { base, categories, controls, tables } from '../styles/shared.js';
import { LedgerElement } from './base.js';
import { thread, threadStyles } from './thread.js';

const QUIET_MS = 150;
const SIGN: Readonly<Record<Answer, string>> = { fits: '✓', tight: '!', does_not_fit: '✕' };

@customElement('ml-advice')
export class AdviceView extends LedgerElement {
  static override styles = [base, controls, tables, categories, threadStyles, css`
    .most { display: grid; grid-template-columns: repeat(auto-fit, minmax(13rem, 1fr)); gap: 0.75rem 1.5rem; margin: 0 0 1.5rem; padding: 0; list-style: none; }
    .most li { border-top: 1px solid var(--rule-strong); padding-top: 0.5rem; min-height: 6.2rem; }
    .most .value { display: block; font: 500 1.35rem/1.3 var(--sans); font-variant-numeric: tabular-nums; }
    .most button { margin-top: 0.35rem; }
    td { vertical-align: baseline; }
    tbody th { font-weight: 500; min-width: 11rem; }
    .cost { display: block; font-weight: 400; color: var(--ink-soft); font-size: 0.85rem; max-width: 34rem; }
    .answer { white-space: nowrap; }
    .fits { color: var(--good); } .tight { color: var(--warn); } .does_not_fit { color: var(--bad); }
    .bar { display: flex; flex-wrap: wrap; gap: 0.25rem 1rem; align-items: baseline; justify-content: space-between; min-height: 2.25rem; }
    .bar p { margin: 0; }
    .trying { min-width: 9rem; text-align: end; }
    thead td { border-bottom-color: var(--rule-strong); }
    tbody th { width: 46%; }
    .saves { min-width: 4rem; }
    @media (max-width: 40rem) {
      .saves, .peak { display: none; }
      thead { display: none; }
      tr { display: grid; grid-template-columns: 1fr auto auto; align-items: center; gap: 0.25rem 1rem; border-bottom: 1px solid var(--rule); padding: 0.5rem 0; }
      th, td { border: 0; padding: 0.1rem 0; }
      tbody th { grid-column: 1 / -1; width: auto; }
      td.right { text-align: start; }
    }
    @media print { .apply { display: none; } }
  `];

  @property({ attribute: false }) core!: Core;
  @property({ attribute: false }) config = '';
  @property({ attribute: false }) recipe!: Recipe;
  @property({ attribute: false }) report!: Report;
  @property({ attribute: false }) plain = false;
  @state() private busy = true;
  @state() private changes: Changes | undefined;
  @state() private solutions: ReadonlyMap<string, Solution> = new Map();
  @state() private applied = ''; // the id of the change that led to the present recipe
  private helper: Helper | undefined;
  private expected: Recipe | undefined;
  private timer = 0;

  override disconnectedCallback(): void {
    super.disconnectedCallback();
    this.helper?.drop();
  }

  protected override willUpdate(changed: PropertyValues): void {
    if (!changed.has('report')) return;
    if (this.applied !== '' && JSON.stringify(this.expected) !== JSON.stringify(this.recipe)) this.applied = '';
    this.busy = true;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.question(), QUIET_MS);
  }

  private question(): void {
    this.helper ??= new Helper((request) => adviceApart(this.core, request), (advice) => this.told(advice), () => { this.busy = false; });
    const about: readonly About[] = this.plain ? ['changes', 'batch', 'gpu'] : ['changes', 'batch', 'seq', 'gpu'];
    void this.helper.put({ config: this.config, recipe: this.recipe, about });
  }

  private told(advice: Advice): void {
    if (advice.about === 'changes') this.changes = advice;
    else if (advice.about !== 'plans' && advice.about !== 'cards') this.solutions = new Map(this.solutions).set(advice.about, advice);
  }

  protected override render(): TemplateResult {
    const { i18n } = this;
    return html`<div aria-busy=${this.busy ? 'true' : 'false'}>
      <h2>${i18n.t('advice.heading')}</h2>
      <div class="bar"><p class="soft">${i18n.t('advice.intro')}</p>
        <p role="status">${this.applied ? html`<button class="quiet" @click=${this.undo}>${i18n.t('advice.undo', { change: this.name(this.applied) })}</button>` : nothing}<span class="soft small">${this.busy ? i18n.t('advice.trying') : nothing}</span></p></div>
      ${this.most()}
      ${this.changes ? this.table(this.changes) : nothing}
    </div>`;
  }

  private most(): TemplateResult {
    const about = this.plain ? (['batch', 'gpu'] as const) : (['batch', 'seq', 'gpu'] as const);
    return html`<ul class="most">${about.map((name) => html`<li>${this.solution(name, this.solutions.get(name))}</li>`)}</ul>`;
  }

  private solution(name: 'batch' | 'seq' | 'gpu', found: Solution | undefined): TemplateResult {
    const { i18n } = this;
    const label = html`<span class="small soft">${i18n.t(`advice.most.${name}`)}</span>`;
    if (!found) return html`${label}<span class="value">…</span>`;
    if (found.value === null || !found.after) return html`${label}<span class="value">${i18n.t('advice.none')}</span>`;
    const { value } = found;
    const shown = name === 'gpu' ? this.gpuName(String(value)) : i18n.format.count(Number(value));
    const now = String(this.report.recipe[name]) === String(value);
    return html`${label}<span class="value">${shown}</span>
      <span class="small soft">${i18n.t(found.at_limit ? 'advice.at_limit' : 'advice.then', { bytes: i18n.bytes(found.after.headroom_bytes) })}${name === 'seq' ? this.beyond(Number(value)) : nothing}</span>
      ${now ? nothing : html`<div><button class="apply" @click=${() => this.apply(name, { [name]: value })}>${i18n.t('advice.use', { value: shown })}</button></div>`}`;
  }

  // A sequence that fits but is longer than the model was made for.
  private beyond(seq: number): string {
    const most = (this.report.model.config as { max_position_embeddings?: number }).max_position_embeddings;
    return most && seq > most ? `${this.i18n.lang === 'zh' ? '' : ' '}${this.i18n.t('advice.beyond', { most: this.i18n.format.count(most) })}` : '';
  }

  private gpuName(id: string): string {
    return (this.core.catalogue.gpus.find((gpu) => gpu.id === id)?.name ?? id).replace(/^NVIDIA (GeForce )?/, '');
  }

  private table({ changes }: Changes): TemplateResult {
    const { i18n } = this;
    if (changes.length === 0) return html`<p>${i18n.t('advice.nothing')}</p>`;
    const most = Math.max(...changes.map((change) => change.saved_bytes), 1);
    return html`<table>
      <caption class="visually-hidden">${i18n.t('advice.table')}</caption>
      <thead><tr><th scope="col">${i18n.t('advice.change')}</th><td class="saves"></td>
        <th scope="col" class="right">${i18n.t('advice.saves')}</th><th scope="col" class="right peak">${i18n.t('advice.peak')}</th>
        <th scope="col">${i18n.t('advice.answer')}</th><td class="apply"></td></tr></thead>
      <tbody>${changes.map((change) => this.row(change, most))}</tbody></table>`;
  }

  private row(change: AdvisedChange, most: number): TemplateResult {
    const { i18n } = this;
    const source = ADVICE_SOURCES[change.id];
    return html`<tr data-id=${change.id}>
      <th scope="row">${this.name(change.id)}
        <span class="cost">${i18n.maybe(`cost.${change.id}`, '')}
          ${source ? html` <a href=${source.url} target="_blank" rel="noopener">${source.name}</a>` : nothing}</span></th>
      <td class="saves">${thread('activations', change.saved_bytes, most)}</td>
      <td class="right" title=${i18n.format.exact(change.saved_bytes)}>${change.saved_bytes > 0 ? i18n.bytes(change.saved_bytes) : i18n.t('advice.pieces')}</td>
      <td class="right peak">${i18n.bytes(change.after.allocated_bytes)}</td>
      <td class="answer ${change.after.answer}">${SIGN[change.after.answer]} ${i18n.t(`advice.answer.${change.after.answer}`)}</td>
      <td class="right apply"><button aria-label=${i18n.t('advice.apply.this', { change: this.name(change.id) })}
        @click=${() => this.apply(change.id, this.patch(change.recipe))}>${i18n.t('advice.apply')}</button></td>
    </tr>`;
  }

  private name(id: string): string {
    return this.i18n.maybe(`advice.${id}`, this.i18n.maybe(`advice.most.${id}`, id.replaceAll('_', ' ')));
  }

  // What the change sets, beside the recipe that it was tried on.
  private patch(recipe: Recipe): Recipe {
    const before = this.report.recipe;
    return Object.fromEntries(Object.entries(recipe).filter(([key, value]) => !sameValue(value, before[key])));
  }

  private apply(id: string, patch: Recipe): void {
    this.ask({ kind: 'recipe', patch });
    void this.updateComplete.then(() => {
      this.applied = id;
      this.expected = this.recipe;
    });
  }

  private undo(): void {
    this.ask({ kind: 'back' });
  }
}
