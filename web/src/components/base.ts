// base.ts - the parent of the page's elements: they all speak through one I18n, and ask for changes by one event.

import { LitElement } from 'lit';
import { property } from 'lit/decorators.js';
import type { Recipe } from '../core/types.js';
import type { I18n } from '../i18n/i18n.js';
import type { Lang, Units } from '../state/request.js';
import type { Scenario } from '../state/scenarios.js';

export class LedgerElement extends LitElement {
  @property({ attribute: false }) i18n!: I18n;
  @property({ attribute: false }) fixed = false; // in an embed: shows, and asks for no change

  protected ask(change: Change): void {
    this.dispatchEvent(new CustomEvent<Change>('change-request', { detail: change, bubbles: true, composed: true }));
  }
}

// What an element may ask of the page; the page alone holds state.
export type Change =
  | { readonly kind: 'preset'; readonly id: string }
  | { readonly kind: 'scenario'; readonly scenario: Scenario }
  | { readonly kind: 'recipe'; readonly patch: Recipe }
  | { readonly kind: 'reset' }
  | { readonly kind: 'undo' }
  | { readonly kind: 'back' }
  | { readonly kind: 'pin' }
  | { readonly kind: 'pin_course' }
  | { readonly kind: 'unpin'; readonly at: number | undefined } // undefined: all
  | { readonly kind: 'open_pin'; readonly at: number }
  | { readonly kind: 'lang'; readonly lang: Lang }
  | { readonly kind: 'units'; readonly units: Units }
  | { readonly kind: 'text'; readonly text: string; readonly name: string }
  | { readonly kind: 'file'; readonly file: File }
  | { readonly kind: 'error'; readonly error: undefined }
  | { readonly kind: 'snapshot'; readonly snapshot: undefined }
  | { readonly kind: 'forget'; readonly name: string }
  | { readonly kind: 'skip' };
