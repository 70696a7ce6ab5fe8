// moments.ts - finding one's way along the timeline: which point, in which phase.

import type { Drawn } from '../core/types.js';

type Timeline = Drawn['timeline'];

export interface Span { readonly name: string; readonly from: number; readonly to: number } // events

export function phaseSpans(timeline: Timeline): Span[] {
  return timeline.phases.map(({ name, event }, at) => ({ name, from: event, to: timeline.phases[at + 1]?.event ?? timeline.events }));
}

export function phaseAt(timeline: Timeline, event: number): string {
  return timeline.phases.findLast((phase) => phase.event <= event)?.name ?? '';
}

// Index of the last point at or before `event`.
export function pointAt({ points }: { readonly points: readonly { readonly event: number }[] }, event: number): number {
  let low = 0;
  let high = points.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if ((points[middle]?.event ?? 0) <= event) low = middle;
    else high = middle - 1;
  }
  return low;
}

export function peakPoint(timeline: Timeline): number {
  return pointAt(timeline, timeline.peak_event);
}

// What a key press means on the timeline; undefined when it means nothing.
export function step(timeline: Timeline, at: number, key: string): number | undefined {
  const last = timeline.points.length - 1;
  const phaseStart = (event: number | undefined): number => (event === undefined ? last : pointAt(timeline, event));
  const event = timeline.points[at]?.event ?? 0;
  switch (key) {
    case 'ArrowLeft': case 'ArrowDown': return Math.max(at - 1, 0);
    case 'ArrowRight': case 'ArrowUp': return Math.min(at + 1, last);
    case 'Home': return 0;
    case 'End': return last;
    case 'PageDown': return phaseStart(timeline.phases.find((phase) => phase.event > event)?.event);
    case 'PageUp': return phaseStart(timeline.phases.findLast((phase) => phase.event < event)?.event ?? 0);
    case 'p': case 'P': return peakPoint(timeline);
    default: return undefined;
  }
}
