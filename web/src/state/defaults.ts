// defaults.ts - the core's default of every recipe key: from the catalogue, or read off a resolved report.

import type { Core } from '../core/loader.js';
import type { Recipe } from '../core/types.js';
import { configText, FIRST_REQUEST } from './request.js';

export function defaultsOf(core: Core): Recipe {
  const stated = core.catalogue.recipe_keys.filter((key) => key.default !== undefined);
  if (stated.length > 0) return Object.fromEntries(stated.map((key) => [key.name, key.default as Recipe[string]]));
  const outcome = core.predict(configText(FIRST_REQUEST.model), {}, 1);
  return outcome.ok ? outcome.value.recipe : {};
}
