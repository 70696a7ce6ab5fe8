// announcer.ts - says the verdict to screen readers, half a second after the last change, so that typing is not read out.

import { html, type TemplateResult } from 'lit';
import { createRef, ref } from 'lit/directives/ref.js';

const QUIET_MS = 500;

export class Announcer {
  private readonly region = createRef<HTMLElement>();
  private timer = 0;

  announce(text: string): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      if (this.region.value && this.region.value.textContent !== text) this.region.value.textContent = text;
    }, QUIET_MS);
  }

  render(): TemplateResult {
    return html`<div class="visually-hidden" role="status" ${ref(this.region)}></div>`;
  }
}
