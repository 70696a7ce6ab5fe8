// ledger_styles.ts - the ledger's table: six columns on a desk, two on a phone.

import { css } from 'lit';

export const ledgerStyles = css`
  :host { container-type: inline-size; }
  .toolbar { display: flex; flex-wrap: wrap; gap: 0.6rem; align-items: end; margin-bottom: 0.75rem; }
  .filter { flex: 1 1 14rem; max-width: 24rem; }
  table { font-size: 0.875rem; }
  .category > th, .category > td { font-weight: 600; }
  .twist { display: inline-flex; align-items: baseline; text-align: start; border: 0; background: none; padding: 0.15rem 0; min-height: 1.75rem; font: inherit; color: inherit; width: 100%; }
  .twist[disabled] { cursor: default; }
  .twist > .soft { margin-inline-start: 0.4rem; font-weight: 400; }
  .arrow { flex: none; width: 0; height: 0; border-block: 4px solid transparent; border-inline-start: 6px solid currentColor; margin-inline-end: 0.55rem; transform-origin: 35% 50%; }
  [aria-expanded='true'] > .arrow { transform: rotate(90deg); }
  .group th { padding-inline-start: 1.1rem; }
  .line th { padding-inline-start: 2.2rem; }
  .line th, .line td { color: var(--ink); }
  .name { overflow-wrap: anywhere; }
  .op { font-size: 0.92em; overflow-wrap: anywhere; }
  .formula { font-variant-numeric: tabular-nums; }
  .term { white-space: nowrap; }
  i { font-family: var(--serif); font-style: italic; color: var(--accent); }
  td.mono { font-size: 0.82rem; white-space: nowrap; }
  .narrow { display: none; }
  .letters { display: flex; flex-wrap: wrap; gap: 0.2rem 1rem; margin: 0.75rem 0 0; }
  .total { margin: 0.6rem 0 0; }
  tfoot th { font-weight: 600; }
  @container (max-width: 46rem) {
    .wide, .share { display: none; }
    th { overflow-wrap: anywhere; padding-inline-end: 0.5rem; }
    .twist > span { min-width: 0; }
    .narrow { display: block; color: var(--ink-soft); font-size: 0.95em; }
    .line th { padding-inline-start: 1.5rem; }
    .group th { padding-inline-start: 0.75rem; }
  }
  @media print { .toolbar { display: none; } }
`;
