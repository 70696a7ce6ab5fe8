// frame.ts - the page within an <iframe>: one <memory-ledger> from the address, and messages to and from its host.
//
// Out: {memoryLedger: 1, type: "ready" | "height" {px} | "change" {hash, answer, allocated_bytes, problem}}. In, from the
// parent alone: "hello" (answered by ready), "set" {hash}. Nothing in a message is fetched, opened or written as markup.

import './embed.js';
import { attributesOf } from './embed/attributes.js';
import type { LedgerChange } from './embed/element.js';

const LEAST_CHANGE = 2; // px
const MOST_HEIGHTS = 500; // a host that answers height with height must not go on for ever

const element = document.querySelector('memory-ledger') as HTMLElement;
let last = 0;
let sent = 0;

function post(type: string, facts: object = {}): void {
  if (window.parent !== window) window.parent.postMessage({ memoryLedger: 1, type, ...facts }, '*');
}

function show(hash: string): void {
  const attributes = attributesOf(hash);
  for (const { name } of [...element.attributes]) if (!attributes.some((each) => each.name === name)) element.removeAttribute(name);
  for (const { name, value } of attributes) element.setAttribute(name, value);
  document.documentElement.lang = element.lang || 'en';
}

function measure(): void {
  const px = Math.ceil(document.documentElement.getBoundingClientRect().height);
  if (Math.abs(px - last) < LEAST_CHANGE || ++sent > MOST_HEIGHTS) return;
  last = px;
  post('height', { px });
}

window.addEventListener('hashchange', () => show(location.hash));
window.addEventListener('message', ({ source, data }: MessageEvent) => {
  if (source !== window.parent || (data as { memoryLedger?: unknown } | null)?.memoryLedger !== 1) return;
  const { type, hash } = data as { type?: unknown; hash?: unknown };
  if (type === 'hello') {
    last = 0;
    post('ready');
    measure();
  }
  if (type === 'set' && typeof hash === 'string') show(hash);
});
element.addEventListener('memory-ledger-change', (event) => {
  const { report, problem, hash } = (event as CustomEvent<LedgerChange>).detail;
  post('change', { hash, answer: report?.verdict.answer ?? null, allocated_bytes: report?.peaks.allocated_bytes ?? null, problem: problem?.code ?? null });
});
new ResizeObserver(measure).observe(document.documentElement);
show(location.hash);
post('ready');
