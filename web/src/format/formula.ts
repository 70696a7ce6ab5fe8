// formula.ts - a ledger line as the product it is, with the reader's own numbers: "32 × b 1 × s 4,096 × ffn 14,336 × 2 B".

import type { Line } from '../core/types.js';
import type { Format } from './format.js';

export interface Term { readonly symbol: string; readonly value: string }

export function terms(line: Line, format: Format): Term[] {
  const factors = line.factors.length > 0 ? line.factors : line.shape.map((value) => ({ symbol: '', value }));
  const named = factors.map(({ symbol, value }) => ({ symbol: symbol === 'none' ? '' : symbol, value: format.count(value) }));
  const count = line.count === 1 ? [] : [{ symbol: '', value: format.count(line.count) }];
  return [...count, ...named, { symbol: '', value: `${line.element_bytes} B` }];
}

export function formulaText(line: Line, format: Format): string {
  return terms(line, format).map(({ symbol, value }) => (symbol ? `${symbol} ${value}` : value)).join(' × ');
}

// What the product comes to; the ledger's law is that this equals `bytes`.
export function product(line: Line): number {
  const factors = line.factors.length > 0 ? line.factors.map((factor) => factor.value) : line.shape;
  return factors.reduce((all, value) => all * value, line.count * line.element_bytes);
}
