// thread.ts - a thin bar in a table row: this amount beside the largest.

import { css, html, type TemplateResult } from 'lit';

export const threadStyles = css`
  .thread { display: block; width: 100%; height: 8px; }
`;

export function thread(category: string, bytes: number, largest: number): TemplateResult {
  const share = largest > 0 ? (bytes / largest) * 100 : 0;
  return html`<svg class="thread" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">
    <rect class="c-${category}" y="2" height="4" width=${Math.max(share, 0.3)}></rect></svg>`;
}
