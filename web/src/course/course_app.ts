// course_app.ts - <ml-course>: the course page. One column of parts, each with its figures; the lab is opened once.
//
// Claims are drawn one after the other, each when the one before it stands whole: a phone can draw and take input in between, and nothing
// moves that was drawn.

import { css, html, LitElement, nothing, type TemplateResult } from 'lit';
import { customElement, state } from 'lit/decorators.js';
import { html as staticHtml, unsafeStatic } from 'lit/static-html.js';
import { CoreFailure } from '../core/loader.js';
import { SINGLE } from '../core/site.js';
import { problem, type Problem } from '../core/types.js';
import { browserLang, I18n, loadTexts } from '../i18n/i18n.js';
import { base, controls } from '../styles/shared.js';
import type { Lang } from '../state/request.js';
import { PARTS, type Claim, type Part } from './claims.js';
import { drawn } from '../components/drawn.js';
import type { Figure } from './figure.js';
import { openLab, type Lab } from './lab.js';
import { readPlace, writePlace, type Place } from './place.js';
import '../components/problem_note.js';
import './activation_figures.js';
import './bytes_figures.js';
import './data_path.js';
import './measure_figure.js';
import './number_lab.js';
import './oom_figure.js';
import './precision_figures.js';
import './ranks_figure.js';
import './self_test.js';

const CLAIMS = PARTS.flatMap(({ claims }) => claims);
const placeOf = ({ ids, figure }: Claim): string => ids[0]?.toLowerCase() ?? figure;

// Whether a link to `place` means this claim, or the part that it begins.
const isAt = (claim: Claim, place: string): boolean => placeOf(claim) === place || PARTS.some(({ id, claims }) => id === place && claims[0] === claim);

@customElement('ml-course')
export class CourseApp extends LitElement {
  static override styles = [base, controls, css`
    .page { max-width: 54rem; margin: 0 auto; padding: 0 clamp(1rem, 3vw, 2.25rem) 3rem; }
    header { display: flex; flex-wrap: wrap; gap: 0.75rem 1.5rem; justify-content: space-between; align-items: center; padding: 1rem 0; border-bottom: 1px solid var(--rule); }
    header a { color: var(--ink); }
    .pair { display: flex; gap: 0.4rem; }
    h1 { font: 400 clamp(2rem, 1.2rem + 3vw, 3.1rem)/1.15 var(--serif); letter-spacing: -0.015em; margin: 2rem 0 1rem; }
    .lead { font: 400 1.15rem/1.6 var(--serif); max-width: 42rem; }
    nav ol { columns: 2 16rem; list-style: none; margin: 0; padding: 0; }
    nav li { padding: 0.2rem 0; break-inside: avoid; }
    nav { border-block: 1px solid var(--rule); padding: 1rem 0; margin: 1.5rem 0 0; }
    h2 { font: 400 clamp(1.5rem, 1.1rem + 1.6vw, 2.1rem)/1.2 var(--serif); margin: 3.5rem 0 0.5rem; padding-top: 1rem; border-top: 2px solid var(--ink); }
    .intro { color: var(--ink-soft); max-width: 42rem; }
    article { margin: 2.25rem 0 0; padding: 1.25rem clamp(0.9rem, 2.5vw, 1.75rem) 1.5rem; background: var(--raised); border: 1px solid var(--rule); border-radius: 10px; scroll-margin-top: 1rem; }
    article.bare { background: none; border: 0; padding-inline: 0; }
    h3 { font: 600 1.15rem/1.35 var(--sans); margin: 0 0 0.5rem; display: flex; gap: 0.6rem; align-items: baseline; }
    h3 .id { margin-inline-start: auto; font: 500 0.8rem var(--mono); white-space: nowrap; }
    h3 .id a { color: var(--ink-soft); }
    .text { max-width: 44rem; margin-bottom: 1.1rem; }
    .sources { font-size: 0.82rem; color: var(--ink-soft); margin: 1rem 0 0; }
    .failure, .loading { margin: 3rem 0; }
    .loading { min-height: 100vh; }
    footer { border-top: 1px solid var(--rule); margin-top: 3rem; padding-top: 1rem; color: var(--ink-soft); font-size: 0.85rem; }
    @media print { header .pair, nav { display: none; } article { break-inside: avoid; border: 0; padding-inline: 0; } h2 { break-after: avoid; } }
  `];

  @state() private i18n: I18n | undefined;
  @state() private lab: Lab | undefined;
  @state() private failure: Problem | undefined;
  @state() private standing = 0; // claims that are drawn so far
  private place: Place = readPlace(location.hash);
  private spoke: Promise<void> | undefined;
  private spoken: Lang | undefined; // the language last asked for

  override connectedCallback(): void {
    super.connectedCallback();
    window.addEventListener('hashchange', this.moved);
    window.addEventListener('beforeprint', this.drawAll);
    this.spoke = this.speak(this.place.lang ?? browserLang());
    void this.open();
  }

  override disconnectedCallback(): void {
    super.disconnectedCallback();
    window.removeEventListener('hashchange', this.moved);
    window.removeEventListener('beforeprint', this.drawAll);
  }

  private async open(): Promise<void> {
    try {
      [this.lab] = await Promise.all([openLab(), this.spoke]);
      for (const claim of CLAIMS) {
        if (this.standing === CLAIMS.length) break; // about to be printed
        this.standing += 1;
        await this.updateComplete;
        if (this.place.at && isAt(claim, this.place.at)) this.scrollToPlace();
        await this.renderRoot.querySelector<Figure>(claim.figure)?.whole();
        await drawn();
      }
    } catch (error) {
      this.failure = error instanceof CoreFailure ? error.problem : problem('core_crashed', { read: String(error) });
    }
  }

  private async speak(lang: Lang): Promise<void> {
    this.spoken = lang;
    if (this.i18n?.lang === lang) return;
    const [texts, course] = await Promise.all([loadTexts(lang), lang === 'zh' ? import('../i18n/course_zh.js').then((all) => all.courseZh) : import('../i18n/course_en.js').then((all) => all.courseEn)]);
    if (this.spoken !== lang) return; // the reader chose another meanwhile
    this.i18n = new I18n(lang, 'gib', { ...texts, ...course });
    document.documentElement.lang = lang === 'zh' ? 'zh-Hans' : 'en';
    document.title = `${this.i18n.t('course.title')} · ${this.i18n.t('page.title')}`;
    document.querySelector('meta[name=description]')?.setAttribute('content', this.i18n.t('course.lead'));
  }

  private readonly drawAll = (): void => {
    if (this.lab) this.standing = CLAIMS.length;
  };

  private readonly moved = (): void => {
    this.place = readPlace(location.hash);
    void this.speak(this.place.lang ?? browserLang());
    this.scrollToPlace();
  };

  private scrollToPlace(): void {
    if (this.place.at) this.renderRoot.querySelector(`#${this.place.at}`)?.scrollIntoView();
  }

  private choose(lang: Lang): void {
    this.place = { ...this.place, lang };
    history.replaceState(null, '', writePlace(this.place));
    void this.speak(lang);
  }

  protected override render(): TemplateResult {
    const { i18n } = this;
    if (!i18n) return html``;
    const calculator = `${SINGLE ? 'memory-ledger.html' : '../'}#lang=${i18n.lang}`;
    return html`<div class="page">
      <header><a href=${calculator}>${i18n.t('course.calculator')}</a>
        <span class="pair" role="group" aria-label=${i18n.t('lang.label')}>
          <button lang="en" aria-pressed=${i18n.lang === 'en' ? 'true' : 'false'} @click=${() => this.choose('en')}>English</button>
          <button lang="zh-Hans" aria-pressed=${i18n.lang === 'zh' ? 'true' : 'false'} @click=${() => this.choose('zh')}>中文</button></span></header>
      <main aria-busy=${this.standing < CLAIMS.length && !this.failure ? 'true' : 'false'}>
        <h1>${i18n.t('course.title')}</h1><p class="lead">${i18n.t('course.lead')}</p>
        <nav aria-label=${i18n.t('course.contents')}><ol>${PARTS.map(({ id }) => html`<li><a href=${writePlace({ ...this.place, at: id })}>${i18n.t(`part.${id}`)}</a></li>`)}</ol></nav>
        ${this.failure ? html`<div class="failure" role="alert"><ml-problem .i18n=${i18n} .problem=${this.failure}></ml-problem></div>`
          : html`${this.lab ? PARTS.map((part) => this.section(part, i18n, this.lab as Lab)) : nothing}
            ${this.standing < CLAIMS.length ? html`<p class="loading">${this.lab ? nothing : i18n.t('course.loading')}</p>` : nothing}`}
      </main>
      <footer><p>${i18n.t('page.private')} ${i18n.t('units.hint')}. ${this.lab ? i18n.t('page.version', { version: this.lab.core.catalogue.version }) : nothing}</p></footer>
    </div>`;
  }

  private section({ id, claims }: Part, i18n: I18n, lab: Lab): TemplateResult | typeof nothing {
    const shown = claims.filter((claim) => CLAIMS.indexOf(claim) < this.standing);
    if (shown.length === 0) return nothing;
    return html`<section aria-labelledby=${id}><h2 id=${id}>${i18n.t(`part.${id}`)}</h2><p class="intro">${i18n.t(`part.${id}.text`)}</p>
      ${shown.map((claim) => this.claim(claim, i18n, lab, claim.title !== `part.${id}`))}</section>`;
  }

  private claim(claim: Claim, i18n: I18n, lab: Lab, titled: boolean): TemplateResult {
    const tag = unsafeStatic(claim.figure);
    const at = placeOf(claim);
    return html`<article id=${at} class=${titled ? '' : 'bare'}>
      ${titled ? html`<h3>${i18n.t(claim.title)}<span class="id">${claim.ids.length > 0 ? html`<a href=${writePlace({ ...this.place, at })} aria-label=${`${i18n.t('course.link')}: ${claim.ids.join(', ')}`}>${claim.ids.join(' ')}</a>` : nothing}</span></h3>
        <p class="text">${i18n.t(claim.text)}</p>` : nothing}
      ${staticHtml`<${tag} .i18n=${i18n} .lab=${lab}></${tag}>`}
      ${claim.sources.length > 0 ? html`<p class="sources">${i18n.t('course.source')} ${claim.sources.map(({ name, url }, i) => html`${i > 0 ? '; ' : ''}<a href=${url} rel="noopener">${name}</a>`)}</p>` : nothing}
    </article>`;
  }
}
