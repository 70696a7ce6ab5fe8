// availability.ts - which values of a recipe key this version of the core computes, found out by asking it.
//
// The question is put with one tiny layer instead of the model, so that the whole table takes a few milliseconds. A value
// counts as missing only when the core's refusal names its key: others may be what stands in the way.

import type { Core } from '../core/loader.js';
import type { Recipe } from '../core/types.js';

const TINY = {
  decoder: JSON.stringify({
    model_type: 'llama', hidden_size: 64, intermediate_size: 128, num_hidden_layers: 1, num_attention_heads: 4, num_key_value_heads: 4, vocab_size: 256,
  }),
  plain: JSON.stringify({ layers: [{ linear: [8, 8] }] }),
};

export function unavailableChoices(core: Core, recipe: Recipe, plain: boolean): Set<string> {
  const missing = new Set<string>();
  const config = plain ? TINY.plain : TINY.decoder;
  for (const key of core.catalogue.recipe_keys) {
    for (const choice of key.kind === 'choice' ? key.choices ?? [] : []) {
      const outcome = core.predict(config, { ...recipe, seq: 16, batch: 1, [key.name]: choice }, 1);
      if (!outcome.ok && outcome.problem.code === 'unsupported_recipe' && outcome.problem.where === key.name) missing.add(`${key.name}=${choice}`);
    }
  }
  return missing;
}
