// model_config.h - a hub config.json (or a plain stack of layers) as the numbers that modules are built from.
//
// Families are a table (families.cc): one row per model_type with the defaults of its configuration class, since
// config.json leaves out keys that equal them. What is not a model configuration (a tokenizer, a generation config,
// ...) is named.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json.h"
#include "core/base/problem.h"
#include "core/trace/trace.h"

namespace ledger {

enum class Architecture : std::uint8_t { llama, plain };  // which module file builds it

struct PlainLinear {
  std::uint64_t in = 0;
  std::uint64_t out = 0;
  bool bias = true;  // nn.Linear's default
};

struct ModelConfig {
  Architecture architecture = Architecture::llama;
  std::string model_type;  // "llama", "plain"
  std::uint64_t hidden_size = 0;
  std::uint64_t num_hidden_layers = 0;
  std::uint64_t num_attention_heads = 0;
  std::uint64_t num_key_value_heads = 0;
  std::uint64_t head_dim = 0;
  std::uint64_t intermediate_size = 0;
  std::uint64_t vocab_size = 0;
  std::uint64_t max_position_embeddings = 0;
  double rms_norm_eps = 1e-6;
  double rope_theta = 10000;
  RopeScaling rope;
  bool tie_word_embeddings = false;
  bool attention_bias = false;
  bool qkv_bias = false;             // on q, k and v only (qwen2)
  bool qk_norm = false;              // RMSNorm on q and k, over the head dimension (qwen3)
  std::uint64_t sliding_window = 0;  // tokens that attention looks back; 0: all of them
  bool mlp_bias = false;
  std::vector<PlainLinear> layers;  // plain stacks only

  // Ids of what was assumed or ignored, for the report's notes ("rope_scaling_type_not_computed", ...), with a detail
  // each.
  std::vector<std::pair<std::string, std::string>> notes;
};

// Largest sizes taken, some hundred times today's largest models, so that no later product can be absurd: even all of
// them at once stay below 2^63 parameters. Out-of-bounds values are Problems, never clamped.
inline constexpr std::uint64_t kMaxLayers = 4096;
inline constexpr std::uint64_t kMaxHiddenSize = std::uint64_t{1} << 20;
inline constexpr std::uint64_t kMaxIntermediateSize = std::uint64_t{1} << 22;
inline constexpr std::uint64_t kMaxHeads = 65536;
inline constexpr std::uint64_t kMaxHeadDim = 4096;
inline constexpr std::uint64_t kMaxVocabSize = std::uint64_t{1} << 24;
inline constexpr std::uint64_t kMaxPositions = std::uint64_t{1} << 30;
inline constexpr std::uint64_t kMaxPlainSize = std::uint64_t{1} << 24;  // in and out of a plain layer

// Reads a config.json text. A key that is absent or null takes the family's default; keys that no size depends on are
// ignored.
Result<ModelConfig> read_model_config(std::string_view text);
Result<ModelConfig> model_config_from(const Json& root);

// Parameters of the model, trained or not, counting tied weights once.
std::uint64_t parameter_count(const ModelConfig& config);

}  // namespace ledger
