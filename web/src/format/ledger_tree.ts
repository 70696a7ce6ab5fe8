// ledger_tree.ts - the flat lines at the peak as a tree: category -> part of the model -> lines, largest first.
//
// Sums are made from the lines shown, never carried over, so that a filtered tree adds up too.

import { CATEGORIES, type Category, type Line } from '../core/types.js';

export interface Group { readonly name: string; readonly bytes: number; readonly lines: readonly Line[] }
export interface Branch { readonly category: Category; readonly bytes: number; readonly groups: readonly Group[] }

export function ledgerTree(lines: readonly Line[]): Branch[] {
  const byCategory = groupBy(lines, (line) => line.category);
  const order = (category: Category): number => CATEGORIES.indexOf(category);
  return [...byCategory]
    .map(([category, members]) => ({ category, bytes: sum(members), groups: groups(members) }))
    .sort((a, b) => b.bytes - a.bytes || order(a.category) - order(b.category));
}

function groups(lines: readonly Line[]): Group[] {
  return [...groupBy(lines, (line) => partOf(line.name))]
    .map(([name, members]) => ({ name, bytes: sum(members), lines: [...members].sort((a, b) => b.bytes - a.bytes) }))
    .sort((a, b) => b.bytes - a.bytes);
}

export function sum(lines: readonly Line[]): number {
  return lines.reduce((total, line) => total + line.bytes, 0);
}

// "model.layers.*.mlp.gate_proj.weight" -> "layers.mlp"; "model.embed_tokens.weight" -> "embed_tokens"; "" -> "".
export function partOf(name: string): string {
  const parts = name.split('.').filter((part) => part !== 'model' && part !== 'weight' && part !== 'bias');
  const star = parts.findIndex((part) => part === '*' || /^\d+$/.test(part));
  if (star < 0) return parts[0] ?? '';
  return [parts[star - 1], parts[star + 1]].filter((part) => part !== undefined).join('.');
}

// Every word must occur in the line's name, operator, dtype, category or shape.
export function matches(line: Line, query: string, categoryText: string): boolean {
  const text = [line.name, line.op, line.dtype, line.category, categoryText, line.shape.join('x')].join(' ').toLowerCase();
  return query.toLowerCase().split(/\s+/).every((word) => text.includes(word));
}

function groupBy<K>(lines: readonly Line[], keyOf: (line: Line) => K): Map<K, Line[]> {
  const all = new Map<K, Line[]>();
  for (const line of lines) {
    const members = all.get(keyOf(line));
    if (members) members.push(line);
    else all.set(keyOf(line), [line]);
  }
  return all;
}
