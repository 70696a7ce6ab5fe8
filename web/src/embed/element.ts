// element.ts - <memory-ledger>: a prediction inside somebody else's page.
//
// Attributes in (docs/embedding.md), the event memory-ledger-change out. Starts when it comes near the screen; all elements
// of a page share one core. Keeps nothing, sends nothing, and asks for no file but its own.

import { html, LitElement, nothing, type TemplateResult } from 'lit';
import { state } from 'lit/decorators.js';
import { CoreFailure, loadUsual, type Core } from '../core/loader.js';
import { SITE } from '../core/site.js';
import { problem, type Outcome, type Problem, type RecipeKey, type Report } from '../core/types.js';
import { browserLang, I18n, loadTexts } from '../i18n/i18n.js';
import { defaultsOf } from '../state/defaults.js';
import { readHash, writeHash } from '../state/hash.js';
import { courseTable } from '../state/pins.js';
import { configText, FIRST_REQUEST, readValue, writeValue, type Defaults, type Lang, type Pin, type Request } from '../state/request.js';
import { base, controls } from '../styles/shared.js';
import { modelName } from '../components/model_name.js';
import { hashOf, split, viewsOf, type View } from './attributes.js';
import { hostStyles } from './host_styles.js';
import { EMBED_TEXTS } from './texts.js';
import { loadView, viewTexts } from './views.js';

const NEAR = '300px';

export interface LedgerChange { readonly report: Report | undefined; readonly problem: Problem | undefined; readonly hash: string }

export class LedgerEmbed extends LitElement {
  static override styles = [base, controls, ...hostStyles];

  @state() private i18n: I18n | undefined;
  @state() private answer: Outcome<Report> | undefined;
  @state() private problems: readonly Problem[] = [];
  private core: Core | undefined;
  private defaults: Defaults = {};
  private request: Request = FIRST_REQUEST;
  private views: readonly View[] = [];
  private turn = 0; // of the last update begun: an earlier one that ends later is dropped
  private readonly sight = new IntersectionObserver((entries) => this.seen(entries), { rootMargin: NEAR });
  private readonly changes = new MutationObserver(() => void this.follow());

  // What the element shows; undefined before it has come into sight, or when the core refused.
  get report(): Report | undefined {
    return this.answer?.ok ? this.answer.value : undefined;
  }

  override connectedCallback(): void {
    super.connectedCallback();
    this.sight.observe(this);
  }

  override disconnectedCallback(): void {
    super.disconnectedCallback();
    this.sight.disconnect();
    this.changes.disconnect();
  }

  private seen(entries: readonly IntersectionObserverEntry[]): void {
    if (!entries.some((entry) => entry.isIntersecting)) return;
    this.sight.disconnect();
    this.changes.observe(this, { attributes: true, childList: true, characterData: true, subtree: true });
    void this.follow();
  }

  private get language(): Lang {
    const text = this.closest('[lang]')?.getAttribute('lang') ?? '';
    return browserLang([text, ...navigator.languages]);
  }

  // The attributes as they are now become the request, and the request its answer.
  private async follow(): Promise<void> {
    const turn = ++this.turn;
    const views = viewsOf(this.getAttribute('view'));
    try {
      const [core, texts] = await Promise.all([loadUsual(), loadTexts(this.language), ...views.map(loadView)]);
      const { request, problems } = await this.read(core, views);
      const [more, answer] = await Promise.all([viewTexts(views, this.language), this.ask(core, request)]);
      if (turn !== this.turn) return;
      this.core = core;
      this.views = views;
      this.request = request;
      this.problems = problems;
      this.i18n = new I18n(this.language, request.units, { ...texts, ...more });
      this.answer = answer;
      this.tell();
    } catch (error) {
      if (turn === this.turn) void this.fail(error instanceof CoreFailure ? error.problem : problem('wasm_missing', { read: String(error).slice(0, 200) }));
    }
  }

  // The answer; where what is loaded of the core does not know it, or one of those that it is compared with, after the rest has come.
  private async ask(core: Core, request: Request): Promise<Outcome<Report>> {
    const answerTo = ({ model, recipe }: Pin): Outcome<Report> => core.predict(configText(model), recipe);
    const answer = answerTo(request);
    if ([answer, ...request.pins.map(answerTo)].every((one) => one.ok || one.problem.code !== 'core_incomplete')) return answer;
    await core.complete();
    return answerTo(request);
  }

  private async read(core: Core, views: readonly View[]): Promise<{ request: Request; problems: readonly Problem[] }> {
    this.defaults = defaultsOf(core.catalogue);
    const config = this.querySelector('script[type="application/json"]')?.textContent ?? undefined;
    const hash = await hashOf([...this.attributes].map(({ name, value }) => ({ name, value })), config);
    const { request, problems } = await readHash(hash, core.catalogue.recipe_keys, this.defaults);
    const compares = views.includes('compare') && request.pins.length === 0;
    return { request: compares ? courseTable(request) : request, problems };
  }

  private async fail(issue: Problem): Promise<void> {
    this.problems = [issue];
    this.i18n ??= new I18n(this.language, 'gib', await loadTexts(this.language).catch(() => ({})));
    this.tell();
  }

  private tell(): void {
    const detail: LedgerChange = { report: this.report, problem: this.answer && !this.answer.ok ? this.answer.problem : this.problems[0], hash: writeHash(this.request) };
    void this.updateComplete.then(() => this.dispatchEvent(new CustomEvent('memory-ledger-change', { detail, bubbles: true, composed: true })));
  }

  protected override render(): TemplateResult {
    const { i18n, answer } = this;
    if (!i18n) return html`<p aria-busy="true">${EMBED_TEXTS[this.language].loading}</p>`;
    const texts = EMBED_TEXTS[i18n.lang];
    return html`<section lang=${i18n.lang === 'zh' ? 'zh-Hans' : 'en'} aria-label=${texts.label.replace('{model}', modelName(this.request.model, i18n))}>
      ${this.controls(i18n)}
      ${this.problems.map((issue) => html`<ml-problem .i18n=${i18n} .problem=${issue}></ml-problem>`)}
      ${answer?.ok ? html`<div class="stack">${this.views.map((view) => this.view(view, answer.value, i18n))}</div>`
        : answer ? html`<ml-problem .i18n=${i18n} .problem=${answer.problem}></ml-problem>` : nothing}
      ${this.core ? html`<p class="foot"><a href=${new URL(writeHash({ ...this.request, lang: i18n.lang }), SITE).href} target="_blank" rel="noopener">${texts.open}</a>
        <span>${i18n.t('page.version', { version: this.core.catalogue.version })}</span></p>` : nothing}
    </section>`;
  }

  private view(view: View, report: Report, i18n: I18n): TemplateResult {
    switch (view) {
      case 'verdict': return html`<ml-verdict .i18n=${i18n} .report=${report} .modelName=${modelName(this.request.model, i18n)} .fixed=${true}></ml-verdict>`;
      case 'bar': return html`<ml-capacity-bar .i18n=${i18n} .report=${report} .gpuName=${report.verdict.gpu_name ?? report.verdict.gpu}></ml-capacity-bar>`;
      case 'timeline': return html`<ml-timeline .i18n=${i18n} .report=${report}></ml-timeline>`;
      case 'ledger': return html`<ml-ledger .i18n=${i18n} .report=${report}></ml-ledger>`;
      case 'compare': return html`<ml-compare .i18n=${i18n} .core=${this.core} .request=${this.request} .defaults=${this.defaults} .answer=${this.answer} .fixed=${true}></ml-compare>`;
    }
  }

  // The recipe keys that the author lets readers change; a change is written back into the attributes.
  private controls(i18n: I18n): TemplateResult | typeof nothing {
    const names = split(this.getAttribute('controls') ?? '', /[\s,]+/).map((name) => name.replaceAll('-', '_'));
    const keys = names.map((name) => this.core?.catalogue.recipe_keys.find((key) => key.name === name)).filter((key) => key !== undefined);
    return keys.length > 0 ? html`<div class="controls">${keys.map((key) => html`<label>${i18n.key(key.name)}${this.field(key)}</label>`)}</div>` : nothing;
  }

  private field(key: RecipeKey): TemplateResult {
    const value = writeValue(this.request.recipe[key.name] ?? this.defaults[key.name] ?? '');
    const choices = key.name === 'gpu' ? (this.core?.catalogue.gpus ?? []).map(({ id, name }) => [id, name.replace(/^NVIDIA (GeForce )?/, '')] as const) : (key.choices ?? []).map((id) => [id, id] as const);
    const set = (text: string): void => {
      if (key.name === 'gpu' || readValue(key, text) !== undefined) this.setAttribute(key.name.replaceAll('_', '-'), text);
    };
    if (key.kind === 'flag') return html`<input type="checkbox" .checked=${value === 'true'} @change=${(event: Event) => set(String((event.target as HTMLInputElement).checked))} />`;
    if (choices.length > 0) {
      return html`<select @change=${(event: Event) => set((event.target as HTMLSelectElement).value)}>${choices.map(([id, name]) => html`<option value=${id} .selected=${id === value}>${name}</option>`)}</select>`;
    }
    const numeric = key.kind === 'integer' || key.kind === 'real';
    return html`<input type=${numeric ? 'number' : 'text'} min=${key.low ?? nothing} .value=${value} @input=${(event: Event) => set((event.target as HTMLInputElement).value)} />`;
  }
}
