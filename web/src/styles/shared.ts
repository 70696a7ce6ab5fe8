// shared.ts - what every component's shadow needs: headings, buttons, fields, tables, focus, category colours.

import { css, unsafeCSS, type CSSResult } from 'lit';
import { CATEGORIES } from '../core/types.js';

export const base = css`
  *, *::before, *::after { box-sizing: border-box; }
  :host { display: block; min-width: 0; }
  :host([hidden]), [hidden] { display: none !important; }
  h2 { margin: 0 0 0.75rem; font: 600 1.05rem/1.3 var(--sans); letter-spacing: 0.005em; }
  h3 { margin: 1.25rem 0 0.5rem; font: 600 0.9rem/1.3 var(--sans); }
  p { margin: 0 0 0.75rem; }
  a { color: var(--accent); text-underline-offset: 0.15em; }
  code, .mono { font-family: var(--mono); font-size: 0.92em; }
  .soft { color: var(--ink-soft); }
  .small { font-size: 0.875rem; }
  .number { font-variant-numeric: tabular-nums; white-space: nowrap; }
  :focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; border-radius: 3px; }
  .visually-hidden {
    position: absolute; width: 1px; height: 1px; margin: -1px; padding: 0; overflow: hidden; clip-path: inset(50%); white-space: nowrap; border: 0;
  }
  @media (forced-colors: active) { :focus-visible { outline-color: Highlight; } }
`;

export const controls = css`
  button, .button {
    font: 500 0.9rem/1.2 var(--sans); color: var(--ink); background: var(--raised); border: 1px solid var(--rule-strong);
    border-radius: 6px; padding: 0.5rem 0.8rem; min-height: 2.25rem; cursor: pointer;
  }
  button:hover, .button:hover { border-color: var(--ink); }
  button[aria-pressed='true'] { background: var(--ink); color: var(--paper); border-color: var(--ink); }
  button.quiet { background: none; border-color: transparent; color: var(--accent); padding-inline: 0.4rem; margin-inline: -0.4rem; }
  button.quiet:hover { text-decoration: underline; text-underline-offset: 0.15em; }
  input, select, textarea {
    font: 1rem/1.3 var(--sans); color: var(--ink); background: var(--raised); border: 1px solid var(--rule-strong);
    border-radius: 6px; padding: 0.45rem 0.6rem; width: 100%; min-width: 0; min-height: 2.4rem; margin: 0;
  }
  input[type='checkbox'] { width: 1.15rem; min-height: 1.15rem; height: 1.15rem; accent-color: var(--accent); }
  input[type='number'] { font-variant-numeric: tabular-nums; }
  [aria-invalid='true'] { border-color: var(--bad); box-shadow: 0 0 0 1px var(--bad); }
  label { font-size: 0.82rem; color: var(--ink-soft); }
  summary { cursor: pointer; font-size: 0.9rem; font-weight: 500; padding: 0.35rem 0; }
  @media (pointer: coarse) { button, .button, input, select, summary { min-height: 2.75rem; } }
  @media print { button, .button, textarea { display: none; } }
`;

export const tables = css`
  .scroll { overflow-x: auto; }
  table { border-collapse: collapse; width: 100%; font-size: 0.9rem; }
  caption { text-align: start; font-weight: 600; font-size: 0.9rem; padding: 0 0 0.35rem; }
  th, td { text-align: start; padding: 0.4rem 0.75rem 0.4rem 0; border-bottom: 1px solid var(--rule); vertical-align: baseline; }
  thead th { font-weight: 500; font-size: 0.82rem; color: var(--ink-soft); border-bottom-color: var(--rule-strong); }
  tbody th { font-weight: 400; }
  tfoot th, tfoot td { font-weight: 600; border-bottom: 0; border-top: 1px solid var(--rule-strong); }
  .right { text-align: end; font-variant-numeric: tabular-nums; white-space: nowrap; }
  tr > :last-child { padding-inline-end: 0; }
`;

const swatches = CATEGORIES.map(
  (id) => `.c-${id} { fill: var(--c-${id}); } .swatch.c-${id} { background: var(--c-${id}); }`,
).join('\n');

export const categories = css`
  .swatch { display: inline-block; width: 0.75rem; height: 0.75rem; border-radius: 2px; margin-inline-end: 0.5rem; vertical-align: -0.05em; forced-color-adjust: none; }
  svg { forced-color-adjust: none; }
  @media print { .swatch { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
  ${unsafeCSS(swatches)}
`;

export const hatch = css`
  .swatch.hatched { border: 1px solid var(--hatch); background: repeating-linear-gradient(135deg, var(--hatch) 0 1px, transparent 1px 4px); }
  .swatch.open { border: 1px dashed var(--rule-strong); background: none; }
`;

export type Styles = readonly CSSResult[];
