// names.h - what each family calls its modules: for parameters, adapters' targets and the scopes of ledger lines.
#pragma once

#include <string_view>
#include <vector>

#include "core/config/model_config.h"
#include "core/config/recipe.h"

namespace ledger {

struct ModuleNames {
  const char* base = "model";
  const char* embed = "embed_tokens";
  const char* positions = "wpe";  // learned ones
  const char* layers = "layers";
  const char* embedding_norm = "word_embeddings_layernorm";
  const char* final_norm = "norm";
  const char* head = "lm_head";
  const char* input_norm = "input_layernorm";
  const char* attention_norm = "post_attention_layernorm";  // after attention, or before the MLP where there are two
  const char* feed_norm = "pre_feedforward_layernorm";
  const char* output_norm = "post_feedforward_layernorm";
  const char* attention = "self_attn";
  const char* q = "q_proj";
  const char* k = "k_proj";
  const char* v = "v_proj";
  const char* qkv = "qkv_proj";
  const char* o = "o_proj";
  const char* q_norm = "q_norm";
  const char* k_norm = "k_norm";
  const char* mlp = "mlp";  // "": its layers are the decoder layer's own
  const char* gate = "gate_proj";
  const char* up = "up_proj";  // or the first of two
  const char* gate_up = "gate_up_proj";
  const char* down = "down_proj";
};

const ModuleNames& names_of(const ModelConfig& config, Stack stack = Stack::hf);

// Llama and the families that are its module with other switches: what is modelled of Llama alone (transformers 4,
// generation) holds for them.
bool is_like_llama(const ModelConfig& config);

// The linear layers that adapters can go on, as `targets` names them.
std::vector<std::string_view> linear_names(const ModelConfig& config, Stack stack = Stack::hf);

}  // namespace ledger
