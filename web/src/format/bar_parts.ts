// bar_parts.ts - the peak as stretches that lie end to end: categories, allocator rounding, cache, context, free.
//
//   categories + rounding = allocated; + cached = reserved at that moment; + later = most reserved; + context = device.

import { CATEGORIES, type Bytes, type Category, type Report } from '../core/types.js';

export type Part =
  | { readonly kind: 'category'; readonly id: Category; readonly from: Bytes; readonly bytes: Bytes }
  | { readonly kind: 'rounding' | 'cached' | 'later' | 'context' | 'free'; readonly from: Bytes; readonly bytes: Bytes };

export interface Extent { readonly id: 'tensor' | 'allocated' | 'reserved' | 'device'; readonly bytes: Bytes }

export interface BarView {
  readonly parts: readonly Part[];
  readonly extents: readonly Extent[];
  readonly end: Bytes; // what the chart's width stands for
}

export function barParts(report: Report): BarView {
  const { at_peak, peaks, verdict } = report;
  const device = peaks.device_bytes ?? peaks.reserved_bytes;
  const parts: Part[] = [];
  let from = 0;
  const lay = (part: { kind: 'category'; id: Category } | { kind: Exclude<Part['kind'], 'category'> }, bytes: Bytes): void => {
    if (bytes > 0) parts.push({ ...part, from, bytes });
    from += Math.max(bytes, 0);
  };
  for (const id of CATEGORIES) lay({ kind: 'category', id }, at_peak.categories[id] ?? 0);
  lay({ kind: 'rounding' }, at_peak.allocator_rounding_bytes);
  lay({ kind: 'cached' }, at_peak.cached_bytes);
  lay({ kind: 'later' }, peaks.reserved_bytes - at_peak.reserved_bytes);
  lay({ kind: 'context' }, device - peaks.reserved_bytes);
  lay({ kind: 'free' }, verdict.capacity_bytes - from);
  const extents: Extent[] = [
    { id: 'tensor', bytes: at_peak.tensor_bytes + at_peak.workspace_bytes },
    { id: 'allocated', bytes: at_peak.allocated_bytes },
    { id: 'reserved', bytes: peaks.reserved_bytes },
    { id: 'device', bytes: device },
  ];
  return { parts, extents, end: Math.max(device, verdict.capacity_bytes) };
}
