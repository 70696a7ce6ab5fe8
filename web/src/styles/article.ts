// article.ts - what a dropped file or a pasted error opens above the answer: a card with a heading and a way to close it.

import { css } from 'lit';

export const article = css`
  article { border: 1px solid var(--rule); border-radius: 8px; background: var(--raised); padding: 1rem 1.1rem; overflow-wrap: anywhere; }
  header { display: flex; gap: 1rem; align-items: start; justify-content: space-between; }
  header button { flex: none; }
  h2 { margin: 0; padding-top: 0.3rem; }
  .says { border-inline-start: 3px solid var(--accent); padding-inline-start: 0.75rem; margin: 0.5rem 0; }
`;
