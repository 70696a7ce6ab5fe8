// problem_note.ts - <ml-problem>: a Problem in words, where the reader looks.

import { css, html, nothing, type PropertyValues, type TemplateResult } from 'lit';
import { customElement, property, state } from 'lit/decorators.js';
import type { Problem } from '../core/types.js';
import { loadProblemTexts, type I18n, type Key } from '../i18n/i18n.js';
import { isImpossible, problemText } from '../i18n/problem_text.js';
import { base } from '../styles/shared.js';
import { LedgerElement } from './base.js';

// Nothing is wrong with the reader's file in these cases.
const MILD: Readonly<Partial<Record<Problem['code'], Key>>> = {
  unsupported_recipe: 'problem.recipe', bad_link: 'problem.link', unknown_preset: 'problem.link',
};

@customElement('ml-problem')
export class ProblemNote extends LedgerElement {
  static override styles = [base, css`
    .note { border-inline-start: 3px solid var(--bad); background: var(--bad-tint); padding: 0.65rem 0.9rem; border-radius: 0 6px 6px 0; overflow-wrap: anywhere; }
    .note.mild { border-color: var(--warn); background: var(--warn-tint); }
    strong { display: block; font-size: 0.9rem; margin-bottom: 0.15rem; }
    p { margin: 0; font-size: 0.92rem; }
  `];

  @property({ attribute: false }) problem!: Problem;

  @state() private voice: I18n | undefined; // knows the sentence

  protected override willUpdate(changed: PropertyValues): void {
    if (changed.has('i18n') || changed.has('problem')) void this.learn();
  }

  private async learn(): Promise<void> {
    const { i18n } = this;
    const known = i18n.has(`problem.${this.problem.code}`) ? {} : await loadProblemTexts(i18n.lang).catch(() => ({})); // offline: facts without a sentence
    if (i18n === this.i18n) this.voice = i18n.with(known);
  }

  protected override render(): TemplateResult | typeof nothing {
    const { voice } = this;
    if (!voice) return nothing;
    const heading = isImpossible(this.problem) ? 'problem.impossible' : MILD[this.problem.code];
    return html`<div class="note ${heading ? 'mild' : ''}" data-code=${this.problem.code}>
      <strong>${voice.t(heading ?? 'problem.heading')}</strong>
      <p>${problemText(this.problem, voice)}</p>
    </div>`;
  }
}
