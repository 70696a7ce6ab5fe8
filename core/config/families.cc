#include "core/config/families.h"

#include <array>
#include <vector>

#include "core/base/nearest.h"

namespace ledger {
namespace {

constexpr std::array kFamilies = {
    Family{.model_type = "llama",
           .architecture = Architecture::llama,
           .hidden_act = "silu",
           .vocab_size = 32000,
           .hidden_size = 4096,
           .intermediate_size = 11008,
           .num_hidden_layers = 32,
           .num_attention_heads = 32,
           .num_key_value_heads = 0,
           .head_dim = 0,
           .max_position_embeddings = 2048,
           .rms_norm_eps = 1e-6,
           .rope_theta = 10000,
           .tie_word_embeddings = false,
           .attention_bias = false,
           .mlp_bias = false,
           .qkv_bias = false,
           .qk_norm = false,
           .sliding_window = 0,
           .window_needs_switch = false,
           .source = "transformers 5.12 models/llama/configuration_llama.py LlamaConfig"},
    Family{.model_type = "mistral",
           .architecture = Architecture::llama,
           .hidden_act = "silu",
           .vocab_size = 32000,
           .hidden_size = 4096,
           .intermediate_size = 14336,
           .num_hidden_layers = 32,
           .num_attention_heads = 32,
           .num_key_value_heads = 8,
           .head_dim = 0,
           .max_position_embeddings = 131072,
           .rms_norm_eps = 1e-6,
           .rope_theta = 10000,
           .tie_word_embeddings = false,
           .attention_bias = false,
           .mlp_bias = false,
           .qkv_bias = false,
           .qk_norm = false,
           .sliding_window = 4096,
           .window_needs_switch = false,
           .source = "transformers 5.12 models/mistral/configuration_mistral.py MistralConfig"},
    Family{.model_type = "qwen2",
           .architecture = Architecture::llama,
           .hidden_act = "silu",
           .vocab_size = 151936,
           .hidden_size = 4096,
           .intermediate_size = 22016,
           .num_hidden_layers = 32,
           .num_attention_heads = 32,
           .num_key_value_heads = 32,
           .head_dim = 0,
           .max_position_embeddings = 32768,
           .rms_norm_eps = 1e-6,
           .rope_theta = 10000,
           .tie_word_embeddings = false,
           .attention_bias = false,
           .mlp_bias = false,
           .qkv_bias = true,
           .qk_norm = false,
           .sliding_window = 4096,
           .window_needs_switch = true,
           .source = "transformers 5.12 models/qwen2/configuration_qwen2.py Qwen2Config"},
    Family{.model_type = "qwen3",
           .architecture = Architecture::llama,
           .hidden_act = "silu",
           .vocab_size = 151936,
           .hidden_size = 4096,
           .intermediate_size = 22016,
           .num_hidden_layers = 32,
           .num_attention_heads = 32,
           .num_key_value_heads = 32,
           .head_dim = 128,
           .max_position_embeddings = 32768,
           .rms_norm_eps = 1e-6,
           .rope_theta = 10000,
           .tie_word_embeddings = false,
           .attention_bias = false,
           .mlp_bias = false,
           .qkv_bias = false,
           .qk_norm = true,
           .sliding_window = 4096,
           .window_needs_switch = true,
           .source = "transformers 5.12 models/qwen3/configuration_qwen3.py Qwen3Config"},
};

}  // namespace

std::span<const Family> families() {
  return kFamilies;
}

const Family* find_family(std::string_view model_type) {
  for (const Family& family : kFamilies) {
    if (model_type == family.model_type) return &family;
  }
  return nullptr;
}

std::string family_names() {
  std::string names;
  for (const Family& family : kFamilies) {
    if (!names.empty()) names += '|';
    names += family.model_type;
  }
  return names;
}

std::string nearest_family(std::string_view model_type) {
  std::vector<const char*> names;
  for (const Family& family : kFamilies)
    names.push_back(family.model_type);
  return nearest(model_type, names);
}

}  // namespace ledger
