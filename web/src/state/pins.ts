// pins.ts - scenarios kept beside what is shown; in a link, each is a part of its own: pin=model=...&method=... encoded.

import { DEFAULT_PRESET, findPreset } from './presets.js';
import { configText, isPlain, type Pin, type Request } from './request.js';
import { SCENARIOS } from './scenarios.js';

export const MOST_PINS = 4;

export function pinKey({ model, recipe }: Pin): string {
  return JSON.stringify([model.kind === 'preset' ? model.id : model.text, recipe]);
}

export function pinned(request: Request): Request {
  const pin: Pin = { model: request.model, recipe: request.recipe };
  const known = request.pins.some((other) => pinKey(other) === pinKey(pin));
  return known || request.pins.length >= MOST_PINS ? request : { ...request, pins: [...request.pins, pin] };
}

export function unpinned(request: Request, at: number | undefined): Request {
  return { ...request, pins: at === undefined ? [] : request.pins.filter((_, i) => i !== at) };
}

// The course's table: full, LoRA and QLoRA of the present model (or of a decoder, where it has no layers to adapt), on
// the present card, batch and sequence.
export function courseTable(request: Request): Request {
  const model = isPlain(request.model) || configText(request.model) === '' ? ({ kind: 'preset', id: DEFAULT_PRESET } as const) : request.model;
  const kept = Object.fromEntries(Object.entries(request.recipe).filter(([key]) => ['batch', 'seq', 'gpu', 'memory_limit_bytes'].includes(key)));
  const rows = SCENARIOS.filter(({ preset }) => findPreset(preset)?.id === DEFAULT_PRESET);
  return { ...request, pins: rows.map(({ recipe }) => ({ model, recipe: { ...kept, ...recipe } })) };
}
