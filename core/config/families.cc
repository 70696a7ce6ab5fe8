#include "core/config/families.h"

#include <array>
#include <vector>

#include "core/base/nearest.h"
#include "core/config/dense_families.h"
#include "core/config/moe_families.h"
#include "core/config/other_families.h"

namespace ledger {
namespace {

template <std::size_t... kSizes>
constexpr auto joined(const std::array<Family, kSizes>&... tables) {
  std::array<Family, (kSizes + ...)> all{};
  std::size_t next = 0;
  const auto take = [&](const auto& table) {
    for (const Family& family : table)
      all[next++] = family;
  };
  (take(tables), ...);
  return all;
}

// Sources: transformers 5.12 models/*/configuration_*.py, class by class; where another is named, that one.
// Keys are the canonical ones of key_aliases(); num_key_value_heads and head_dim are left out where they follow from
// the other sizes.
constexpr auto kFamilies = joined(kDenseFamilies, kMoeFamilies, kOtherFamilies);

// Attribute maps of configuration classes, and keys of files older than them.
constexpr std::array kAliases = {
    KeyAlias{"hidden_size", "n_embd"},
    KeyAlias{"hidden_size", "d_model"},
    KeyAlias{"hidden_size", "n_embed"},
    KeyAlias{"num_hidden_layers", "n_layer"},
    KeyAlias{"num_hidden_layers", "num_layers"},
    KeyAlias{"num_attention_heads", "n_head"},
    KeyAlias{"num_attention_heads", "num_heads"},
    KeyAlias{"num_key_value_heads", "num_kv_heads"},
    KeyAlias{"num_key_value_heads", "n_head_kv"},
    KeyAlias{"intermediate_size", "n_inner"},
    KeyAlias{"intermediate_size", "ffn_dim"},
    KeyAlias{"intermediate_size", "ffn_hidden_size"},
    KeyAlias{"intermediate_size", "d_ff"},
    KeyAlias{"max_position_embeddings", "n_positions"},
    KeyAlias{"max_position_embeddings", "n_ctx"},
    KeyAlias{"rms_norm_eps", "layer_norm_eps"},
    KeyAlias{"rms_norm_eps", "layer_norm_epsilon"},
    KeyAlias{"rms_norm_eps", "norm_epsilon"},
    KeyAlias{"hidden_activation", "hidden_act"},
    KeyAlias{"hidden_activation", "activation_function"},
    KeyAlias{"hidden_activation", "activation"},
    KeyAlias{"partial_rotary_factor", "rotary_pct"},
    KeyAlias{"rope_theta", "rotary_emb_base"},
    KeyAlias{"sliding_window_pattern", "_sliding_window_pattern"},
    KeyAlias{"num_experts", "num_local_experts"},
    KeyAlias{"num_experts", "n_routed_experts"},
    KeyAlias{"num_experts_per_tok", "experts_per_token"},
    KeyAlias{"image_token_index", "image_token_id"},
};

}  // namespace

std::span<const Family> families() {
  return kFamilies;
}

std::span<const KeyAlias> key_aliases() {
  return kAliases;
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
  names.reserve(kFamilies.size());
  for (const Family& family : kFamilies)
    names.push_back(family.model_type);
  return nearest(model_type, names);
}

}  // namespace ledger
