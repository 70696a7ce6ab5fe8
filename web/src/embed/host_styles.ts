// host_styles.ts - the page's tokens on an element's host: by the reader's preference, or as the attribute theme says.

import { css, unsafeCSS, type CSSResult } from 'lit';
import tokens from '../styles/tokens.css';

const ROOT = /:root\s*\{([^{}]*)\}/g;

// tokens.css has three blocks: light, dark (within a media query), print.
function hostTokens(): CSSResult {
  const [light = '', dark = ''] = [...tokens.matchAll(ROOT)].map((match) => match[1]);
  return unsafeCSS(`:host{${light}}@media (prefers-color-scheme:dark){:host(:not([theme=light])){${dark}}}:host([theme=light]){color-scheme:light}:host([theme=dark]){color-scheme:dark;${dark}}@media print{:host{color-scheme:light;--paper:#ffffff}}`);
}

export const hostStyles = [hostTokens(), css`
  :host { display: block; box-sizing: border-box; container-type: inline-size; font: 16px/1.55 var(--sans); color: var(--ink); background: var(--paper); border: 1px solid var(--rule); border-radius: 10px;
    padding: 1.1rem 1.25rem; text-align: start; letter-spacing: normal; text-indent: 0; text-transform: none; min-height: var(--ledger-height, 21rem); }
  :host([hidden]) { display: none; }
  .stack > * + * { margin-top: 1.5rem; }
  .controls { display: flex; flex-wrap: wrap; gap: 0.6rem 1rem; margin-bottom: 1.1rem; }
  .controls label { display: grid; gap: 0.2rem; }
  .controls input[type='number'] { width: 7.5rem; }
  .foot { display: flex; flex-wrap: wrap; gap: 0.25rem 1.5rem; justify-content: space-between; margin: 1rem 0 0; font-size: 0.82rem; color: var(--ink-soft); }
  ml-problem + ml-problem { margin-top: 0.5rem; }
  @media print { .controls { display: none; } }
`];
