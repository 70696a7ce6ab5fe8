// models.ts - the models that the figures compute with; config.json keys that sizes depend on.

import { findPreset } from '../state/presets.js';

interface Decoder { readonly num_hidden_layers: number; readonly hidden_size: number; readonly intermediate_size: number }

export const LLAMA_3_8B = findPreset('llama-3-8b')?.config as Decoder;
export const PLAIN_STACK = findPreset('course-8x-linear-2048')?.config as object;

// Two layers and a short vocabulary of the same widths: what one layer does stands out at the peak.
export const TWO_LAYERS: object = { ...LLAMA_3_8B, num_hidden_layers: 2, vocab_size: 512 };

// Source: config.json of mistralai/Mixtral-8x7B-v0.1 on the Hugging Face hub.
export const MIXTRAL: object = {
  model_type: 'mixtral', hidden_size: 4096, intermediate_size: 14336, num_attention_heads: 32, num_key_value_heads: 8,
  num_hidden_layers: 32, num_local_experts: 8, num_experts_per_tok: 2, vocab_size: 32000, tie_word_embeddings: false,
};
