// problem_note.ts - <ml-problem>: a Problem in words, where the reader looks.

import { css, html, type TemplateResult } from 'lit';
import { customElement, property } from 'lit/decorators.js';
import type { Problem } from '../core/types.js';
import type { Key } from '../i18n/i18n.js';
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

  protected override render(): TemplateResult {
    const heading = isImpossible(this.problem) ? 'problem.impossible' : MILD[this.problem.code];
    return html`<div class="note ${heading ? 'mild' : ''}" data-code=${this.problem.code}>
      <strong>${this.i18n.t(heading ?? 'problem.heading')}</strong>
      <p>${problemText(this.problem, this.i18n)}</p>
    </div>`;
  }
}
