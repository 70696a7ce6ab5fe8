// oom_view.ts - <ml-oom>: a pasted out-of-memory error explained. A bundle of its own (oom_view.js), loaded with the first
// error, as its texts and its reader are: most visits need none of them.

import { css, html, LitElement, nothing, type PropertyValues, type TemplateResult } from 'lit';
import { customElement, property, state } from 'lit/decorators.js';
import type { Core } from '../core/loader.js';
import { explainOom } from '../core/oom_loader.js';
import type { Oom, OomAdvice, OomMatch, OomMessage, OomPrediction } from '../core/oom_types.js';
import type { Outcome, Recipe, RecipeKey, Report } from '../core/types.js';
import type { I18n } from '../i18n/i18n.js';
import { fill, loadOomTexts, type OomKey, type OomTexts } from '../i18n/oom_texts.js';
import type { PastedError } from '../state/session.js';
import { article } from '../styles/article.js';
import { base, controls, tables } from '../styles/shared.js';

const FIELDS = ['requested', 'capacity', 'allocated', 'reserved', 'unallocated', 'free', 'this_process'] as const;

@customElement('ml-oom')
export class OomView extends LitElement {
  static override styles = [base, controls, tables, article, css`
    .columns { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr)); gap: 0 2rem; }
    .cause { font-size: 1.05rem; margin: 0.6rem 0 0.3rem; }
    ol, ul { margin: 0; padding-inline-start: 1.3rem; }
    li { margin-block: 0.35rem; font-size: 0.92rem; }
    q, .quote { font: 0.82rem/1.4 var(--mono); color: var(--ink-soft); display: block; quotes: none; }
    .saves { font-weight: 600; white-space: nowrap; }
    .says { font-weight: 500; }
    dl { display: grid; grid-template-columns: auto 1fr; gap: 0.2rem 1rem; margin: 0; font-size: 0.9rem; }
    dt { color: var(--ink-soft); }
    dd { margin: 0; text-align: end; font-variant-numeric: tabular-nums; }
  `];

  @property({ attribute: false }) i18n!: I18n;
  @property({ attribute: false }) error!: PastedError;
  @property({ attribute: false }) core!: Core;
  @property({ attribute: false }) config = '';
  @property({ attribute: false }) report: Report | undefined;

  @state() private texts: OomTexts | undefined;
  @state() private answer: Outcome<Oom> | undefined;
  @state() private saved: ReadonlyMap<string, number> = new Map();
  private asked = 0;

  protected override willUpdate(changed: PropertyValues): void {
    if (changed.has('i18n')) void loadOomTexts(this.i18n.lang).then((texts) => (this.texts = texts));
    if (changed.has('error') || changed.has('report')) void this.explain();
  }

  private async explain(): Promise<void> {
    const asked = ++this.asked;
    const { report } = this;
    const answer = await explainOom(this.error.text, report);
    if (asked !== this.asked) return; // a newer question is on its way
    this.answer = answer;
    this.saved = answer.ok && report ? savings(this.core, this.config, report, answer.value.advice) : new Map();
  }

  private close(): void {
    const detail = { kind: 'error', error: undefined };
    this.dispatchEvent(new CustomEvent('change-request', { detail, bubbles: true, composed: true }));
  }

  protected override render(): TemplateResult | typeof nothing {
    const { answer, texts } = this;
    if (!answer || !texts) return nothing;
    if (!answer.ok) return html`<article role="alert"><p>${fill(texts.failed, { read: answer.problem.read })}</p></article>`;
    const oom = answer.value;
    return html`<article>
      <header><h2 id="oom-heading">${texts.heading}${this.error.name ? html` <span class="soft small">${this.error.name}</span>` : nothing}</h2>
        <button class="quiet" aria-label=${texts.close} @click=${this.close}>✕</button></header>
      ${this.verdict(oom, texts)}
      ${oom.prediction ? this.prediction(oom.prediction, texts) : nothing}
      <div class="columns">
        <section><h3>${texts.advice}</h3><ol>${oom.advice.map((advice) => this.advice(advice, texts))}</ol></section>
        <section><h3>${texts.evidence}</h3><ul>${oom.evidence.map((entry) => this.evidence(entry, texts))}</ul></section>
        ${oom.messages.map((message) => this.message(message, texts))}
      </div>
    </article>`;
  }

  private verdict(oom: Oom, texts: OomTexts): TemplateResult {
    const name = (cause: string): string => text(texts, `cause.${cause.replaceAll(' ', '_')}`, cause);
    const stage = text(texts, `stage.${oom.stage.replaceAll(' ', '_')}`, oom.stage);
    const confidence = `${Math.round(oom.confidence * 100)} %`;
    const short = (cause: string): string => name(cause).split(/[:：]/)[0]?.replace(/[.。]$/, '') ?? cause;
    return html`<p class="cause"><strong>${name(oom.cause)}</strong></p>
      <p class="soft small">${fill(texts.stage, { stage })} ${fill(texts.confidence, { confidence })}
        ${oom.also_possible.length > 0 ? fill(texts.also, { causes: oom.also_possible.map(short).join(this.i18n.lang === 'zh' ? '、' : ', ') }) : nothing}
        ${oom.read_bytes < oom.text_bytes ? fill(texts.cut, { bytes: this.i18n.bytes(oom.read_bytes) }) : nothing}</p>`;
  }

  private evidence(entry: Oom['evidence'][number], texts: OomTexts): TemplateResult {
    const kind = entry.id.slice(0, entry.id.indexOf('_') + 1);
    const words = text(texts, `evidence.${entry.id}`, text(texts, `evidence.${kind}`, entry.id));
    return html`<li>${words}${entry.bytes === null ? nothing : html` <span class="number">(${this.i18n.bytes(entry.bytes)})</span>`}
      ${entry.quote ? html`<q>${entry.quote}</q>` : nothing}</li>`;
  }

  private advice(advice: OomAdvice, texts: OomTexts): TemplateResult {
    const saves = this.saved.get(advice.id) ?? advice.saves_bytes;
    return html`<li>${text(texts, `advice.${advice.id}`, advice.id)}
      ${saves === null ? nothing : html` <span class="saves">${fill(texts.saves, { bytes: this.i18n.bytes(saves) })}</span>`}</li>`;
  }

  private message(message: OomMessage, texts: OomTexts): TemplateResult {
    const known = FIELDS.filter((field) => message[`${field}_bytes`] !== null);
    if (known.length === 0) return html``;
    const where = [message.format, message.device ?? '', message.gpu === null ? '' : `GPU ${message.gpu}`].filter((part) => part !== '').join(' · ');
    return html`<section><h3>${texts.numbers} <span class="soft">${where}</span></h3><dl>
      ${known.map((field) => html`<dt>${texts[`field.${field}`]}</dt><dd>${this.i18n.bytes(message[`${field}_bytes`] ?? 0)}</dd>`)}
      ${message.processes.map(({ pid, bytes }) => html`<dt>${fill(texts.process, { pid })}</dt><dd>${bytes === null ? '?' : this.i18n.bytes(bytes)}</dd>`)}
    </dl></section>`;
  }

  private prediction(prediction: OomPrediction, texts: OomTexts): TemplateResult {
    const bytes = this.i18n.bytes(prediction.predicted_allocated_bytes);
    return html`<section><h3>${texts.prediction}</h3>
      ${prediction.conclusions.map((id) => html`<p class="says">${text(texts, `conclusion.${id}`, id)}</p>`)}
      <p class="small">${fill(texts.predicted, { bytes })}
        ${prediction.phase ? fill(texts.place, { phase: this.i18n.phase(prediction.phase) }) : nothing}
        ${prediction.request_says_nothing ? texts.small_request : nothing}</p>
      ${prediction.matches.length > 0 ? html`<p class="small">${texts.matches}</p><ul>${prediction.matches.map((match) => html`<li>${this.match(match, texts)}</li>`)}</ul>` : nothing}
    </section>`;
  }

  private match(match: OomMatch, texts: OomTexts): string {
    const width = String(match.element_bytes);
    if (match.category === '') {
      return fill(match.name === 'params' ? texts['match.params'] : texts['match.trainable'], { width, ranks: String(match.divided_by) });
    }
    const name = match.name === '' ? match.op : `${match.name} (${match.op})`;
    const dtype = match.other_dtype ? fill(texts['match.width'], { width, dtype: match.dtype }) : match.dtype;
    return [name, this.i18n.category(match.category), dtype, this.i18n.bytes(match.bytes)].join(', ');
  }
}

function text(texts: OomTexts, key: string, fallback: string): string {
  return texts[key as OomKey] ?? fallback;
}

// What each change of recipe saves at the peak, by asking the core again; nothing where it is not modelled or costs more.
function savings(core: Core, config: string, report: Report, advice: readonly OomAdvice[]): ReadonlyMap<string, number> {
  const saved = new Map<string, number>();
  for (const { id, recipe } of advice) {
    const patch = typed(recipe, core.catalogue.recipe_keys);
    if (Object.entries(patch).every(([key, value]) => report.recipe[key] === value)) continue;
    const changed = core.predict(config, { ...report.recipe, ...patch }, 1);
    const less = changed.ok ? report.peaks.allocated_bytes - changed.value.peaks.allocated_bytes : 0;
    if (less > 0) saved.set(id, less);
  }
  return saved;
}

// Values of a recipe come as text; the core takes them as what they are.
function typed(recipe: Readonly<Record<string, string>>, keys: readonly RecipeKey[]): Recipe {
  const kinds = new Map(keys.map((key) => [key.name, key.kind]));
  return Object.fromEntries(Object.entries(recipe).map(([key, value]) => {
    const kind = kinds.get(key);
    return [key, kind === 'integer' ? Number(value) : kind === 'flag' ? value === 'true' : value];
  }));
}
