// app.ts - <memory-ledger>: the whole page. Owns the session and the URL hash; lays out the parts.

import { html, LitElement, nothing, type TemplateResult } from 'lit';
import { customElement, state } from 'lit/decorators.js';
import { CoreFailure, loadCore, loadFirst } from '../core/loader.js';
import { problem, type Problem, type Report } from '../core/types.js';
import { browserLang, I18n, loadTexts } from '../i18n/i18n.js';
import { refusedValues, type Refused } from '../state/availability.js';
import { configText, FIRST_REQUEST, isPlain, seesImages, type Lang } from '../state/request.js';
import { modelName } from './model_name.js';
import { SINGLE, SITE } from '../core/site.js';
import { loadView } from '../core/views.js';
import { hashLang, isFirstQuestion } from '../state/hash.js';
import { courseTable, pinned, unpinned } from '../state/pins.js';
import { Trail } from '../state/trail.js';
import { fetchSamples } from '../state/samples.js';
import { Session, type Said, type SnapshotFile } from '../state/session.js';
import { Announcer } from './announcer.js';
import { appStyles } from './app_styles.js';
import type { Change } from './base.js';
import { DropController } from './drop.js';
import { drawn } from './drawn.js';
import type { BoxMessage } from './model_box.js';
import { NearController, SightController } from './sight.js';
import './capacity_bar.js';
import './figures.js';
import './model_box.js';
import './page_header.js';
import './problem_note.js';
import './question_view.js';
import './recipe_form.js';
import './scenarios.js';
import { headlineText } from './verdict_view.js';

const QUIET_MS = 200;
const AT_REST_MS = 2500;
const FIRST_SCREEN = 4; // its parts: the form, the question, the verdict, the bar

@customElement('memory-ledger')
export class MemoryLedger extends LitElement {
  static override styles = appStyles;

  @state() private failure: Problem | undefined;
  @state() private belowFailure: Problem | undefined;
  @state() private refused: Refused = new Map();
  @state() private session: Session | undefined;
  @state() private standing = 0; // parts of the first screen that are drawn so far: all at once would hold up a phone
  @state() private opened = false; // what the link asks for is shown, and changes are taken
  private timer = 0;
  private resting = 0;
  private started: Promise<void> | undefined;
  private spoke: Promise<void> | undefined;
  @state() private unrolled = 0; // sections below it, likewise
  private below: typeof import('./below.js') | undefined; // what lies below the first screen, once it is here
  private readonly trail = new Trail(window);
  @state() private i18n: I18n | undefined; // undefined until its texts are here
  @state() private i18nBelow: I18n | undefined; // the same with the texts of what lies below: the first screen need not be drawn again for them
  private spoken: Lang | undefined; // the language last asked for
  private readonly announcer = new Announcer();
  private readonly drop = new DropController(this, {
    file: (file) => void this.started?.then(() => this.session?.readFile(file)),
    text: (text) => void this.started?.then(() => this.session?.readText(text, '', false)),
  });
  private readonly sight = new SightController(this, () => this.renderRoot.querySelector('main'));
  private readonly onHash = (): void => {
    const { session } = this;
    if (session && location.hash !== session.hash) void this.started?.then(() => session.open(location.hash));
  };

  constructor() {
    super();
    new NearController(this, () => this.renderRoot.querySelector('#below'), () => void this.loadBelow());
    new NearController(this, () => this.renderRoot.querySelector('#measured'), () => void this.addSamples());
  }

  override connectedCallback(): void {
    super.connectedCallback();
    window.addEventListener('hashchange', this.onHash);
    this.spoke = this.speak(hashLang(location.hash) ?? browserLang());
    this.started = this.start();
  }

  override disconnectedCallback(): void {
    super.disconnectedCallback();
    window.removeEventListener('hashchange', this.onHash);
  }

  private async start(): Promise<void> {
    try {
      const first = isFirstQuestion(location.hash);
      const core = await (first ? loadFirst() : loadCore());
      await this.spoke;
      await drawn();
      const session = new Session(core, () => this.sessionChanged());
      await drawn();
      if (first) await this.show(session);
      await core.complete();
      await drawn();
      await session.open(location.hash);
      if (!first) {
        this.session = session;
        this.sessionChanged();
        await this.show(session);
      }
      this.opened = true;
      this.resting = setTimeout(() => void this.loadBelow(), AT_REST_MS);
    } catch (error) {
      this.failure = error instanceof CoreFailure ? error.problem : problem('core_crashed', { read: String(error) });
    }
  }

  // One part after the other. What others than the first question are answered is not known before the core is whole.
  private async show(session: Session): Promise<void> {
    this.session = session;
    while (this.standing < FIRST_SCREEN) {
      this.standing += 1;
      await drawn();
    }
  }

  // Without a network it may not be there: the first screen stands without it.
  private async loadBelow(): Promise<void> {
    clearTimeout(this.resting);
    if (this.below) return;
    try {
      const below = await import('./below.js');
      this.below = below;
      below.keepOffline();
      if (this.i18n) this.i18nBelow = this.i18n.with(await below.loadBelowTexts(this.i18n.lang));
      while (this.unrolled < below.SECTIONS) {
        this.unrolled += 1;
        await drawn();
      }
    } catch (error) {
      this.belowFailure = problem('part_missing', { read: String(error) });
    }
  }

  private async addSamples(): Promise<void> {
    await this.session?.core.complete();
    for (const sample of await fetchSamples(SITE)) this.session?.addMeasured(sample.text, sample.name, true);
  }

  // After the answer is drawn: what the form may offer next to the present recipe.
  private lookAround(session: Session): void {
    clearTimeout(this.timer);
    const { request } = session;
    this.timer = setTimeout(async () => {
      const found = await refusedValues(session.core, request.recipe, configText(request.model), () => session.request === request);
      if (found && JSON.stringify([...found]) !== JSON.stringify([...this.refused])) this.refused = found;
    }, QUIET_MS);
  }

  private sessionChanged(): void {
    const { session } = this;
    if (!session) return;
    this.i18n = this.i18n?.in(session.request.units);
    this.i18nBelow = this.i18nBelow?.in(session.request.units);
    void this.speak(session.request.lang ?? browserLang());
    this.trail.follow(session.hash, session.lastChange);
    this.requestUpdate();
    this.lookAround(session);
    void this.updateComplete.then(() => this.announcer.announce(this.headline()));
  }

  // Speaks `lang`, here and in the document, as soon as its texts are loaded.
  private async speak(lang: Lang): Promise<void> {
    this.spoken = lang;
    if (this.i18n?.lang === lang) return;
    try {
      const [texts, more] = [await loadTexts(lang), await this.below?.loadBelowTexts(lang)];
      if (this.spoken !== lang) return; // the reader chose another meanwhile
      this.i18n = new I18n(lang, this.session?.request.units ?? 'gib', texts); // units as they are by now
      this.i18nBelow = more && this.i18n.with(more);
    } catch (error) {
      this.failure = problem('wasm_missing', { read: String(error) }); // keeps the language it has, if any
      return;
    }
    document.documentElement.lang = lang === 'zh' ? 'zh-Hans' : 'en';
    document.title = this.i18n.t('page.title');
    document.querySelector('meta[name=description]')?.setAttribute('content', this.i18n.t('page.description'));
  }

  private headline(): string {
    const answer = this.session?.answer;
    return answer?.ok && this.i18n ? headlineText(answer.value.verdict, this.i18n) : '';
  }

  private onChange(event: CustomEvent<Change>): void {
    const { session } = this;
    const change = event.detail;
    if (!session || !this.opened) return void this.started?.then(() => { if (this.opened) this.onChange(event); }); // the screen stands before the core is whole
    switch (change.kind) {
      case 'preset': return session.setPreset(change.id);
      case 'scenario': return session.setScenario(change.scenario);
      case 'recipe': return session.setRecipe(change.patch);
      case 'reset': return session.reset();
      case 'undo': return session.undo();
      case 'back': return history.back();
      case 'pin': return session.setPins(pinned);
      case 'pin_course': return session.setPins(courseTable);
      case 'unpin': return session.setPins((request) => unpinned(request, change.at));
      case 'open_pin': return session.openPin(change.at);
      case 'lang': return session.setView({ lang: change.lang });
      case 'units': return session.setView({ units: change.units });
      case 'text': return void session.readText(change.text, change.name);
      case 'file': return void session.readFile(change.file);
      case 'error': return session.setError(change.error);
      case 'snapshot': return session.setSnapshot(change.snapshot);
      case 'forget': return session.forget(change.name);
      case 'skip': return this.renderRoot.querySelector('main')?.focus();
    }
  }

  protected override render(): TemplateResult {
    const { i18n } = this;
    if (!i18n) return this.failure ? html`<main class="failure"><p>Memory Ledger could not be loaded: ${this.failure.read}</p></main>` : html``;
    return html`<div class="page" @change-request=${this.onChange}>
      <ml-header .i18n=${i18n} .hash=${this.session?.hash ?? ''}></ml-header>
      ${this.failure ? html`<main class="failure" id="answer" tabindex="-1"><div role="alert"><ml-problem .i18n=${i18n} .problem=${this.failure}></ml-problem></div></main>`
        : this.session || isFirstQuestion(location.hash) ? this.body(this.session, i18n)
        : html`<main class="loading" id="answer" tabindex="-1" aria-busy="true"><p>${i18n.t('page.loading')}</p></main>`}
      <footer><p><a href=${`${SINGLE ? 'memory-ledger-course.html' : 'course/'}#lang=${i18n.lang}`}>${i18n.t('page.course')}</a></p><p>${i18n.t('page.private')}</p><p>${i18n.t('units.hint')}</p>
        <p>${this.session ? i18n.t('page.version', { version: this.session.core.catalogue.version }) : nothing}</p></footer>
      ${this.drop.over ? html`<div class="drop" aria-hidden="true">${i18n.t('box.drop')}</div>` : nothing}
      ${this.mini()}
      ${this.announcer.render()}
    </div>`;
  }

  // On a phone the answer lies below the inputs: until it is in sight, its headline stands at the screen's foot.
  private mini(): TemplateResult | typeof nothing {
    const headline = this.headline();
    if (!headline) return nothing;
    return html`<button class="mini" ?hidden=${this.sight.seen} @click=${() => this.renderRoot.querySelector('main')?.scrollIntoView()}>
      <span>${headline}</span><span aria-hidden="true">↓</span></button>`;
  }

  // Without a session: what stands already while the core is on its way. The same elements stay when it is here.
  private body(session: Session | undefined, i18n: I18n): TemplateResult {
    const { model } = session?.request ?? FIRST_REQUEST;
    const facts = session?.answer.ok ? session.answer.value.model : undefined;
    return html`<ml-scenarios .i18n=${i18n} .request=${session?.request ?? FIRST_REQUEST}></ml-scenarios>
    <div class="columns">
      <aside aria-label=${i18n.t('form.heading')}>
        <ml-model-box .i18n=${i18n} .model=${model} .facts=${facts} .message=${this.message(session?.said, i18n)}></ml-model-box>
        ${session ? this.form(session, i18n) : html`<div class="later"></div>`}
      </aside>
      <main id="answer" tabindex="-1" aria-busy=${this.opened ? 'false' : 'true'}>${session && this.standing > 1 ? this.answerAndBelow(session, i18n)
        : html`<p class="later soft">${i18n.t('page.loading')}</p>`}</main>
    </div>`;
  }

  private form({ core, request, defaults, answer, canUndo }: Session, i18n: I18n): TemplateResult {
    return html`<ml-recipe-form .i18n=${i18n} .catalogue=${core.catalogue} .recipe=${request.recipe} .defaults=${defaults}
      .plain=${isPlain(request.model)} .images=${seesImages(request.model)} .problem=${answer.ok ? undefined : answer.problem} .refused=${this.refused} .canUndo=${canUndo}></ml-recipe-form>`;
  }

  private answerAndBelow(session: Session, i18n: I18n): TemplateResult {
    const { answer, request, core } = session;
    return html`<ml-question .i18n=${i18n} .catalogue=${core.catalogue} .recipe=${{ ...session.defaults, ...request.recipe }} .model=${request.model} .plain=${isPlain(request.model)}
        .refused=${this.refused} .problem=${answer.ok ? undefined : answer.problem}></ml-question>
      ${session.linkProblems.map((issue) => html`<ml-problem .i18n=${i18n} .problem=${issue}></ml-problem>`)}
      ${session.error ? this.errorView(session, i18n) : nothing}
      ${session.snapshot ? this.snapshotView(session, session.snapshot, i18n) : nothing}
      ${answer.ok ? this.answerView(answer.value, session, i18n) : html`<ml-problem class="instead" .i18n=${i18n} .problem=${answer.problem}></ml-problem>`}
      ${this.below && this.i18nBelow ? this.below.sections(session, this.i18nBelow).map((section, at) => (section && at < this.unrolled ? section() : nothing))
        : html`<div id=${this.standing < FIRST_SCREEN ? nothing : 'below'} class="later">${this.belowFailure ? html`<ml-problem .i18n=${i18n} .problem=${this.belowFailure}></ml-problem>` : nothing}</div>`}`;
  }

  // Its element comes with the first error; until then this is an empty section.
  private errorView(session: Session, i18n: I18n): TemplateResult {
    void loadView('oom_view');
    return html`<section class="error"><ml-oom .i18n=${i18n} .error=${session.error} .core=${session.core} .config=${configText(session.request.model)}
      .report=${session.answer.ok ? session.answer.value : undefined}></ml-oom></section>`;
  }

  private snapshotView(session: Session, snapshot: SnapshotFile, i18n: I18n): TemplateResult {
    void this.loadBelow(); // has the timeline
    void loadView('snapshot_view');
    return html`<section class="error"><ml-snapshot .i18n=${this.i18nBelow ?? i18n} .snapshot=${snapshot} .report=${session.answer.ok ? session.answer.value : undefined}></ml-snapshot></section>`;
  }

  private answerView(report: Report, session: Session, i18n: I18n): TemplateResult | typeof nothing {
    const gpu = report.verdict.gpu_name ?? report.verdict.gpu;
    if (this.standing < 3) return nothing;
    return html`<section class="first">
        <ml-verdict .i18n=${i18n} .report=${report} .modelName=${modelName(session.request.model, i18n)}></ml-verdict>
        <ml-figures .i18n=${i18n} .peaks=${report.peaks}></ml-figures></section>
      ${this.standing > 3 ? html`<section><ml-capacity-bar .i18n=${i18n} .report=${report} .gpuName=${gpu}></ml-capacity-bar></section>` : nothing}`;
  }

  private message(said: Said | undefined, i18n: I18n): BoxMessage | undefined {
    if (!said) return undefined;
    if (said.kind === 'problem') return { problem: said.problem };
    const name = said.name ? `${i18n.t('box.name', { name: said.name })} ` : '';
    if (said.kind === 'imported') return { text: name + said.say(i18n.lang) };
    if (said.kind === 'config') return { text: name + i18n.t('box.config', { family: said.family, params: i18n.format.count(said.params) }) };
    if (said.kind === 'recipe') return { text: name + i18n.t('box.recipe', { keys: said.keys.join(', ') }) };
    return { text: name + i18n.t(`box.${said.kind}`) };
  }
}
