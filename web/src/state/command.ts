// command.ts - the `probe` command line that measures what the page predicts.

import type { Recipe, RecipeValue } from '../core/types.js';
import { writeValue, type Request } from './request.js';

export function configFileName(request: Request): string {
  return request.model.kind === 'preset' ? `${request.model.id}.json` : 'config.json';
}

// What --model takes: a checkpoint's name, or the reader's own file.
export function modelArgument(request: Request): string {
  return request.model.kind === 'preset' ? request.model.id : 'config.json';
}

// Flags have the recipe keys' names, '-' for '_'; keys at their default are left out.
export function probeCommand(request: Request): string {
  return ['probe', '--model', modelArgument(request), ...flags(request.recipe), '--json', 'measured.json'].join(' ');
}

function flags(recipe: Recipe): string[] {
  return Object.entries(recipe).flatMap(([key, value]) => [`--${key.replaceAll('_', '-')}`, quoted(value)]);
}

function quoted(value: RecipeValue): string {
  const text = writeValue(value);
  return /^[\w.,:=+/-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}
