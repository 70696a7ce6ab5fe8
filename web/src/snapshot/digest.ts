// digest.ts - a snapshot's history as a timeline, and what was alive at its peak.
//
// torch.cuda.memory._snapshot(): `segments` is the allocator's state at the end, `device_traces` the events that led there. The
// state before the first event is the end less all events, so every sum is exact, however much of the run was recorded.
// Sizes of events and `requested_size` are what the tensors asked for; segments are what the allocator holds.

import type { Bytes, Point } from '../core/types.js';
import { framesOf, originOf, placeOf, type Origin } from './origins.js';
import { isDict, type Dict, type Value } from './unpickle.js';

export class NotASnapshot extends Error {}

// Told by frames. unknown: none were recorded, or the tensor is older than the history and freed in it.
export const KINDS = ['weights', 'gradients', 'optimizer_states', 'logits', 'activations', 'communication', 'temporaries', 'unknown'] as const;
export type Kind = (typeof KINDS)[number];

export interface Group {
  readonly kind: Kind;
  readonly place: string; // "modeling_llama.py:120 forward"; '' without frames
  readonly count: number;
  readonly bytes: Bytes;
}

export interface DeviceDigest {
  readonly device: number;
  readonly events: number;
  readonly recorded: boolean; // with frames
  readonly end: { readonly requested: Bytes; readonly allocated: Bytes; readonly reserved: Bytes; readonly largest_free: Bytes };
  readonly peak: { readonly event: number; readonly requested: Bytes; readonly reserved: Bytes };
  readonly most_reserved: Bytes;
  readonly points: readonly Point[];
  readonly groups: readonly Group[]; // sum to peak.requested
  readonly failed: readonly { readonly requested: Bytes; readonly free: Bytes }[]; // out-of-memory errors
}

interface Living {
  readonly size: Bytes;
  readonly kind: Kind;
  readonly place: string;
}

const POINTS = 400;
const ENDED: ReadonlySet<string> = new Set(['free_completed', 'free']);
const GROWN: ReadonlySet<string> = new Set(['segment_alloc', 'segment_map']);
const SHRUNK: ReadonlySet<string> = new Set(['segment_free', 'segment_unmap']);

export function isSnapshot(root: Value | undefined): root is Dict {
  return isDict(root) && Array.isArray(root['segments']) && Array.isArray(root['device_traces']);
}

// One digest a device that has memory or events; throws NotASnapshot.
export function digest(root: Value): readonly DeviceDigest[] {
  if (!isSnapshot(root)) throw new NotASnapshot();
  const segments = dicts(root['segments']);
  const traces = root['device_traces'] as readonly Value[];
  const devices = new Map<number, Dict[]>();
  const of = (device: number): Dict[] => devices.get(device) ?? devices.set(device, []).get(device) as Dict[];
  for (const segment of segments) of(count(segment['device'])).push(segment);
  traces.forEach((trace, device) => Array.isArray(trace) && trace.length > 0 && of(device));
  return [...devices].sort(([a], [b]) => a - b).map(([device, own]) => digestOf(device, own, dicts(traces[device])));
}

function digestOf(device: number, segments: readonly Dict[], events: readonly Dict[]): DeviceDigest {
  const blocks = segments.flatMap((segment) => dicts(segment['blocks']));
  const held = blocks.filter((block) => told(block['state']).startsWith('active'));
  const recorded = events.some((event) => hasFrames(event)) || held.some(hasFrames);
  const end = {
    requested: sum(held, requestedOf), allocated: sum(held, (block) => size(block['size'])), reserved: sum(segments, (segment) => size(segment['total_size'])),
    largest_free: blocks.filter((block) => block['state'] === 'inactive').reduce((most, block) => Math.max(most, size(block['size'])), 0),
  };
  const run = new Run(events, recorded);
  run.start(held, end.reserved);
  const { points, peak, mostReserved } = run.walk();
  return {
    device, events: events.length, recorded, end, peak, most_reserved: mostReserved, points, groups: grouped(run.livingAt(peak.event)),
    failed: events.filter((event) => event['action'] === 'oom').map((event) => ({ requested: size(event['size']), free: size(event['device_free']) })),
  };
}

// The history, walked forwards from the state before its first event.
class Run {
  private readonly kinds: Kind[]; // of each alloc event
  private readonly freedAt: Int32Array; // event that frees what this one allocated; the number of events: none does
  private readonly allocatedAt: Int32Array; // event that allocated what this one frees; -1: before the history
  private first: Living[] = []; // alive before the first event
  private firstFreed: number[] = []; // event that frees each of them
  private reserved = 0;

  constructor(private readonly events: readonly Dict[], private readonly recorded: boolean) {
    this.freedAt = new Int32Array(events.length).fill(events.length);
    this.allocatedAt = new Int32Array(events.length).fill(-1);
    const open = new Map<number, number>();
    events.forEach((event, at) => {
      const address = count(event['addr']);
      if (event['action'] === 'alloc') open.set(address, at);
      else if (ENDED.has(told(event['action']))) {
        const from = open.get(address);
        if (from === undefined) return;
        this.allocatedAt[at] = from;
        this.freedAt[from] = at;
        open.delete(address);
      }
    });
    this.kinds = this.kindsOfAllocations();
  }

  private kindsOfAllocations(): Kind[] {
    const origins = this.events.map((event): Origin | undefined => (event['action'] === 'alloc' ? originOf(framesOf(event['frames']), this.recorded) : undefined));
    const stepAfter = nextStep(origins);
    return origins.map((origin, at) => kindOf(origin ?? 'unknown', (this.freedAt[at] ?? 0) > (stepAfter[at] ?? 0)));
  }

  // held: the blocks that are alive at the end. Those that no event allocated, and what events free without having allocated it,
  // were there before.
  start(held: readonly Dict[], reservedAtEnd: Bytes): void {
    const allocated = new Set<number>();
    this.events.forEach((event, at) => event['action'] === 'alloc' && this.freedAt[at] === this.events.length && allocated.add(count(event['addr'])));
    for (const block of held) {
      if (allocated.has(count(block['address']))) continue;
      const frames = framesOf(block['frames']);
      this.first.push({ size: requestedOf(block), kind: kindOf(originOf(frames, this.recorded), true), place: placeOf(frames) });
      this.firstFreed.push(this.events.length);
    }
    this.events.forEach((event, at) => {
      if (!ENDED.has(told(event['action'])) || this.allocatedAt[at] !== -1) return;
      this.first.push({ size: size(event['size']), kind: 'unknown', place: '' });
      this.firstFreed.push(at);
    });
    this.reserved = this.events.reduce((left, event) => left - growth(event), reservedAtEnd);
  }

  walk(): { points: Point[]; peak: DeviceDigest['peak']; mostReserved: Bytes } {
    const totals: number[] = KINDS.map((kind) => sum(this.first, (living) => (living.kind === kind ? living.size : 0)));
    const points = new Points(this.events.length);
    const firstByEvent = new Map(this.firstFreed.map((event, i) => [event, this.first[i] as Living]));
    let [requested, reserved] = [sum(this.first, (living) => living.size), this.reserved];
    let peak = { event: -1, requested, reserved };
    let mostReserved = reserved;
    points.add(0, requested, reserved, totals);
    this.events.forEach((event, at) => {
      const [kind, change] = this.changeAt(event, at, firstByEvent);
      if (change !== 0) totals[KINDS.indexOf(kind)] = (totals[KINDS.indexOf(kind)] ?? 0) + change;
      requested += change;
      reserved += growth(event);
      mostReserved = Math.max(mostReserved, reserved);
      if (requested > peak.requested) peak = { event: at, requested, reserved };
      points.add(at + 1, requested, reserved, totals);
    });
    return { points: points.take(), peak: { ...peak, event: peak.event + 1 }, mostReserved };
  }

  private changeAt(event: Dict, at: number, first: ReadonlyMap<number, Living>): readonly [Kind, number] {
    const action = told(event['action']);
    if (action === 'alloc') return [this.kinds[at] ?? 'unknown', size(event['size'])];
    if (!ENDED.has(action)) return ['unknown', 0];
    const from = this.allocatedAt[at] ?? -1;
    if (from < 0) return [first.get(at)?.kind ?? 'unknown', -(first.get(at)?.size ?? 0)];
    return [this.kinds[from] ?? 'unknown', -size(this.events[from]?.['size'])];
  }

  // after: how many events have happened.
  livingAt(after: number): Living[] {
    const living = this.first.filter((_, i) => (this.firstFreed[i] ?? 0) >= after);
    for (let at = 0; at < after; ++at) {
      const event = this.events[at] as Dict;
      if (event['action'] !== 'alloc' || (this.freedAt[at] ?? 0) < after) continue;
      living.push({ size: size(event['size']), kind: this.kinds[at] ?? 'unknown', place: placeOf(framesOf(event['frames'])) });
    }
    return living;
  }
}

// What lives from a backward pass into the optimizer's step is a gradient; what does not was scratch.
function kindOf(origin: Origin, intoTheStep: boolean): Kind {
  if (origin === 'backward') return intoTheStep ? 'gradients' : 'temporaries';
  return (KINDS as readonly string[]).includes(origin) ? (origin as Kind) : 'unknown';
}

// For each event the next one that an optimizer made; without any, the end: what then still lives counts as it would there.
function nextStep(origins: readonly (Origin | undefined)[]): Int32Array {
  const next = new Int32Array(origins.length);
  let step = origins.length - 1;
  for (let at = origins.length - 1; at >= 0; --at) {
    if (origins[at] === 'optimizer_states' || origins[at] === 'temporaries') step = at;
    next[at] = step;
  }
  return next;
}

// At most POINTS of a long history, each the highest moment of its stretch, so that no peak is lost.
class Points {
  private readonly kept: Point[] = [];
  private readonly stretch: number;
  private best: Point | undefined;

  constructor(private readonly events: number) {
    this.stretch = Math.max(1, Math.ceil((events + 1) / POINTS));
  }

  add(event: number, requested: Bytes, reserved: Bytes, totals: readonly Bytes[]): void {
    const from = Math.floor(event / this.stretch);
    if (this.best && Math.floor(this.best.event / this.stretch) !== from) this.flush();
    if (!this.best || requested > this.best.tensor_bytes || event === this.events) {
      if (event === this.events && this.best && requested <= this.best.tensor_bytes) this.flush();
      this.best = { event, tensor_bytes: requested, allocated_bytes: requested, reserved_bytes: reserved, categories: [...totals] };
    }
  }

  take(): Point[] {
    this.flush();
    return this.kept;
  }

  private flush(): void {
    if (this.best) this.kept.push(this.best);
    this.best = undefined;
  }
}

function grouped(living: readonly Living[]): Group[] {
  const groups = new Map<string, { kind: Kind; place: string; count: number; bytes: Bytes }>();
  for (const { kind, place, size } of living) {
    const key = `${kind} ${place}`;
    const group = groups.get(key) ?? { kind, place, count: 0, bytes: 0 };
    group.count += 1;
    group.bytes += size;
    groups.set(key, group);
  }
  return [...groups.values()].sort((a, b) => b.bytes - a.bytes);
}

function growth(event: Dict): number {
  const action = told(event['action']);
  return GROWN.has(action) ? size(event['size']) : SHRUNK.has(action) ? -size(event['size']) : 0;
}

// Before PyTorch 2.1 blocks had a list of what was put into them, the newest first.
function requestedOf(block: Dict): Bytes {
  const newest = dicts(block['history'])[0];
  return size(block['requested_size'] ?? newest?.['real_size'] ?? block['size']);
}

function hasFrames(event: Dict): boolean {
  return Array.isArray(event['frames']) && event['frames'].length > 0;
}

function dicts(value: Value | undefined): readonly Dict[] {
  return Array.isArray(value) ? (value as readonly Value[]).filter(isDict) : [];
}

function told(value: Value | undefined): string {
  return typeof value === 'string' ? value : '';
}

// An address, or the number of a device.
function count(value: Value | undefined): number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value > 0 ? value : 0;
}

const LARGEST_SIZE = 2 ** 44; // more than any GPU has, and sums stay exact

function size(value: Value | undefined): Bytes {
  return count(value) <= LARGEST_SIZE ? count(value) : 0;
}

function sum<T>(items: readonly T[], of: (item: T) => number): number {
  return items.reduce((all, item) => all + of(item), 0);
}
