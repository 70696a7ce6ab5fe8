// defaults.ts - the core's default of every recipe key, which the catalogue gives as text.

import type { Catalogue, Recipe, RecipeValue } from '../core/types.js';
import { readValue } from './request.js';

export function defaultsOf(catalogue: Catalogue): Recipe {
  const entries = catalogue.recipe_keys.map((key) => [key.name, readValue(key, String(key.default))] as const);
  return Object.fromEntries(entries.filter((entry): entry is readonly [string, RecipeValue] => entry[1] !== undefined));
}
