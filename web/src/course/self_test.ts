// self_test.ts - <ml-self-test>: questions that check the reader's number, and show the way to it afterwards.

import { css, html, nothing, type TemplateResult } from 'lit';
import { customElement, state } from 'lit/decorators.js';
import { Figure, figureStyles } from './figure.js';
import { isRight, questions, readAnswer, type Question, type QuestionId } from './questions.js';

@customElement('ml-self-test')
export class SelfTest extends Figure {
  static override styles = [...figureStyles, css`
    ol { padding: 0; margin: 0; list-style: none; counter-reset: question; display: grid; gap: 1.5rem; }
    li { counter-increment: question; border-top: 1px solid var(--rule); padding-top: 0.9rem; }
    form { display: flex; flex-wrap: wrap; gap: 0.5rem; align-items: center; }
    form label { flex-basis: 100%; font-size: 1rem; color: var(--ink); max-width: 46rem; }
    form label::before { content: counter(question) '. '; font-weight: 600; }
    input { width: 9rem; }
    .unit { min-width: 2rem; }
    [role='status'] { margin: 0.5rem 0 0; max-width: 46rem; }
    @media print { form button { display: none; } }
  `];

  @state() private round = 0;
  @state() private given: ReadonlyMap<QuestionId, string> = new Map();
  @state() private shown: ReadonlySet<QuestionId> = new Set();

  protected override figure(): TemplateResult {
    const { i18n } = this;
    const all = questions(this.lab, this.round);
    const right = all.filter((question) => this.state(question) === 'right').length;
    return html`<ol>${all.map((question) => this.question(question))}</ol>
      <div class="controls again"><button @click=${this.again}>${i18n.t('test.again')}</button><span role="status">${i18n.t('test.score', { right, all: all.length })}</span></div>`;
  }

  private state(question: Question): 'open' | 'unread' | 'right' | 'wrong' {
    const text = this.given.get(question.id);
    if (text === undefined) return 'open';
    const read = readAnswer(text);
    return read === undefined ? 'unread' : isRight(question, read) ? 'right' : 'wrong';
  }

  private question(question: Question): TemplateResult {
    const { i18n } = this;
    const { id, values, unit } = question;
    const state = this.state(question);
    return html`<li><form novalidate @submit=${(event: Event) => this.check(event, id)}>
        <label for=${`answer-${id}`}>${i18n.t(`test.${id}`, values)}</label>
        <input id=${`answer-${id}`} name="answer" inputmode="decimal" autocomplete="off" aria-invalid=${state === 'wrong' || state === 'unread' ? 'true' : 'false'} />
        <span class="unit">${unit}</span>
        <button type="submit">${i18n.t('test.check')}</button>
        <button type="button" class="quiet" aria-expanded=${this.shown.has(id) ? 'true' : 'false'} @click=${() => (this.shown = new Set([...this.shown, id]))}>${i18n.t('test.show')}</button>
      </form>
      <p role="status">${state === 'right' ? html`<span class="yes">✓ ${i18n.t('test.right', { answer: this.answer(question) })}</span>`
        : state === 'wrong' ? html`<span class="no">✕ ${i18n.t('test.wrong')}</span>` : state === 'unread' ? html`<span class="no">${i18n.t('test.unread')}</span>` : nothing}
        ${this.shown.has(id) || state === 'right' ? html`<span>${i18n.t(`test.${id}.why`, { ...values, answer: this.answer(question) })}</span>` : nothing}</p></li>`;
  }

  private answer({ answer, unit }: Question): string {
    const digits = new Intl.NumberFormat(this.i18n.lang === 'zh' ? 'zh-Hans' : 'en', { maximumFractionDigits: 1 }).format(answer);
    return unit === '' ? digits : `${digits} ${unit}`;
  }

  private check(event: Event, id: QuestionId): void {
    event.preventDefault();
    const field = (event.target as HTMLFormElement).elements.namedItem('answer') as HTMLInputElement;
    this.given = new Map([...this.given, [id, field.value]]);
  }

  private readonly again = (): void => {
    this.round += 1;
    this.given = new Map();
    this.shown = new Set();
    for (const form of this.renderRoot.querySelectorAll('form')) form.reset();
  };
}
