// app_styles.ts - the page's layout: inputs beside the answer on a desk, above it on a phone.

import { css } from 'lit';
import { base } from '../styles/shared.js';

export const appStyles = [base, css`
  .page { max-width: 78rem; margin: 0 auto; padding: 0 clamp(1rem, 3vw, 2.25rem) 2rem; }
  ml-header { border-bottom: 1px solid var(--rule); }
  .columns { display: grid; grid-template-columns: minmax(0, 19.5rem) minmax(0, 1fr); gap: 2.75rem; align-items: start; padding-top: 1.75rem; }
  aside { display: grid; gap: 1.5rem; }
  @media (min-width: 60.01rem) {
    aside { position: sticky; top: 0; max-height: 100vh; overflow-y: auto; padding: 1.25rem 4px; margin: -1.25rem -4px; scrollbar-width: thin; }
  }
  .mini { display: none; }
  main { min-width: 0; outline-offset: 6px; }
  main:focus:not(:focus-visible) { outline: none; }
  section { padding: 2rem 0; border-top: 1px solid var(--rule); }
  section.first { border-top: 0; padding-top: 0; }
  ml-figures { margin-top: 1.75rem; }
  main > ml-problem { margin-bottom: 1rem; }
  .failure { max-width: 44rem; margin: 3rem auto; }
  .later { min-height: 100vh; padding-top: 2rem; margin: 0; }
  .loading { min-height: 60vh; padding-top: 3rem; color: var(--ink-soft); }
  footer { border-top: 1px solid var(--rule); padding-top: 1rem; display: flex; flex-wrap: wrap; gap: 0 2rem; justify-content: space-between; color: var(--ink-soft); font-size: 0.85rem; }
  footer p { margin: 0.15rem 0; }
  .drop { position: fixed; inset: 0.75rem; display: grid; place-items: center; border: 3px dashed var(--accent); border-radius: 14px; background: color-mix(in srgb, var(--paper) 88%, transparent); font: 400 1.75rem var(--serif); pointer-events: none; z-index: 3; }
  @media (max-width: 60rem) {
    .columns { grid-template-columns: minmax(0, 1fr); gap: 1.75rem; }
    main { border-top: 1px solid var(--rule); padding-top: 1.75rem; }
    .mini:not([hidden]) { display: flex; justify-content: space-between; gap: 1rem; position: fixed; inset: auto 0 0; padding: 0.8rem 1rem; z-index: 2; min-height: 3rem;
      background: var(--ink); color: var(--paper); border: 0; font: 600 1rem/1.3 var(--sans); text-align: start; cursor: pointer; }
  }
  @media print {
    .mini { display: none !important; }
    .columns { display: block; }
    aside { margin-bottom: 1.5rem; }
    section { break-inside: avoid-page; }
  }
`];
