// question.ts - a request for a prediction, as the core reads it (docs/schema/request.schema.json).

import type { Recipe } from './types.js';

const TIMELINE_POINTS = 400;

export function questionOf(config: string, recipe: Recipe, points = TIMELINE_POINTS): string {
  return JSON.stringify({ config, recipe, timeline_points: points });
}
