// scenarios.ts - beginnings at one click: a model and a whole recipe, but for the card, which stays the reader's.

import type { Recipe } from '../core/types.js';
import { withRecipe, type Defaults, type Request } from './request.js';

export interface Scenario {
  readonly id: 'full' | 'lora' | 'qlora' | 'course';
  readonly preset: string;
  readonly recipe: Recipe; // beside the core's defaults
}

// As people run them: PEFT's prepare_model_for_kbit_training() turns checkpointing on, the Trainer's bf16=True autocast.
export const SCENARIOS: readonly Scenario[] = [
  { id: 'full', preset: 'llama-3-8b', recipe: {} },
  { id: 'lora', preset: 'llama-3-8b', recipe: { method: 'lora', checkpointing: 'full' } },
  { id: 'qlora', preset: 'llama-3-8b', recipe: { method: 'qlora', checkpointing: 'full', autocast: true } },
  { id: 'course', preset: 'course-8x-linear-2048', recipe: { precision: 'fp32' } },
];

export function begin({ preset, recipe }: Scenario, request: Request, defaults: Defaults): Request {
  const { gpu } = request.recipe;
  const card: Recipe = gpu === undefined ? {} : { gpu };
  return withRecipe({ ...request, model: { kind: 'preset', id: preset }, recipe: card }, recipe, defaults);
}

// Whether this is what stands on the page now.
export function isShown({ preset, recipe }: Scenario, request: Request): boolean {
  const own = Object.entries(request.recipe).filter(([key]) => key !== 'gpu');
  return request.model.kind === 'preset' && request.model.id === preset
    && own.length === Object.keys(recipe).length && own.every(([key, value]) => recipe[key] === value);
}
