// availability.ts - which values of a recipe key the core computes next to the present recipe, found out by asking it.
//
// The question is put with one tiny layer instead of the model, so that the whole table takes some tens of milliseconds of
// the core's thread, one at a time; undefined when the answer is no longer wanted. A value counts as missing only when the
// core's refusal names its key: others may be what stands in the way.

import { predictApart } from '../core/apart.js';
import type { Core } from '../core/loader.js';
import type { Problem, Recipe, RecipeKey, RecipeValue } from '../core/types.js';

// "key=value" -> why the core refuses it.
export type Refused = ReadonlyMap<string, Problem>;

export async function refusedValues(core: Core, recipe: Recipe, config: string, wanted: () => boolean): Promise<Refused | undefined> {
  const refused = new Map<string, Problem>();
  const tiny = tinyLike(config);
  for (const key of core.catalogue.recipe_keys) {
    for (const value of valuesOf(key)) {
      const outcome = await predictApart(core, tiny, { ...recipe, seq: 16, batch: 1, [key.name]: value }, 1);
      if (!wanted()) return undefined;
      if (!outcome.ok && outcome.problem.code === 'unsupported_recipe' && outcome.problem.where === key.name) refused.set(`${key.name}=${value}`, outcome.problem);
    }
  }
  return refused;
}

// Of numbers only the one by which a second GPU is asked for.
function valuesOf(key: RecipeKey): readonly RecipeValue[] {
  if (key.kind === 'choice') return key.choices ?? [];
  if (key.kind === 'flag') return [true];
  return key.name === 'dp' ? [2] : [];
}

// One small layer that has in common with the model what refusals ask about: its family, and whether heads are grouped.
function tinyLike(config: string): string {
  const { layers, model_type, num_attention_heads: heads, num_key_value_heads: grouped } = JSON.parse(config) as Record<string, unknown>;
  if (layers) return JSON.stringify({ layers: [{ linear: [8, 8] }] });
  return JSON.stringify({
    model_type, hidden_size: 64, intermediate_size: 128, num_hidden_layers: 1, vocab_size: 256, num_attention_heads: 4,
    num_key_value_heads: (grouped ?? heads) === heads ? 4 : 2,
  });
}
