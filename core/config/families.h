// families.h - the known model_types: one row each, with the defaults of its configuration class.
//
// config.json leaves out keys that equal the class's defaults (transformers PretrainedConfig.to_diff_dict), so the
// defaults are part of the format. A new family is a row here, a module in core/models/ and a fixture in
// tests/fixtures/configs/.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/config/model_config.h"

namespace ledger {

struct Family {
  const char* model_type;     // in config.json
  Architecture architecture;  // whose module builds it
  const char* hidden_act;     // the only activation that the module computes
  std::uint64_t vocab_size;
  std::uint64_t hidden_size;
  std::uint64_t intermediate_size;
  std::uint64_t num_hidden_layers;
  std::uint64_t num_attention_heads;
  std::uint64_t num_key_value_heads;  // 0: as many as attention heads
  std::uint64_t head_dim;             // 0: hidden_size / num_attention_heads
  std::uint64_t max_position_embeddings;
  double rms_norm_eps;
  double rope_theta;
  bool tie_word_embeddings;
  bool attention_bias;
  bool mlp_bias;
  bool qkv_bias;                 // on q, k and v only
  bool qk_norm;                  // RMSNorm on q and k
  std::uint64_t sliding_window;  // of the class; 0: none
  bool window_needs_switch;      // only with use_sliding_window true
  const char* source;            // the configuration class
};

std::span<const Family> families();
const Family* find_family(std::string_view model_type);  // nullptr when unknown

// The known model_types as Problem::expected wants them, "llama|...", and the one most like `model_type`.
std::string family_names();
std::string nearest_family(std::string_view model_type);

}  // namespace ledger
