// availability.ts - which values of a recipe key this version of the core computes, found out by asking it.
//
// The question is put with a model of one tiny layer, so that the whole table takes a few milliseconds.

import type { Core } from '../core/loader.js';

const TINY = JSON.stringify({
  model_type: 'llama', hidden_size: 64, intermediate_size: 128, num_hidden_layers: 1, num_attention_heads: 4, num_key_value_heads: 4, vocab_size: 256,
});

export function unavailableChoices(core: Core): Set<string> {
  const missing = new Set<string>();
  for (const key of core.catalogue.recipe_keys) {
    for (const choice of key.kind === 'choice' ? key.choices ?? [] : []) {
      const outcome = core.predict(TINY, { seq: 16, [key.name]: choice }, 1);
      if (!outcome.ok && outcome.problem.code === 'unsupported_recipe') missing.add(`${key.name}=${choice}`);
    }
  }
  return missing;
}
