#include "core/config/moe_keys.h"

#include <algorithm>
#include <string>

#include "core/base/bytes.h"

namespace ledger {
namespace {

bool contains(const Json* list, std::uint64_t number) {
  return list != nullptr && std::any_of(list->items().begin(), list->items().end(),
                                        [&](const Json& item) { return item.as_unsigned() == number; });
}

// Layer `i` has experts: transformers modeling_qwen3_moe.py, modeling_deepseek_v3.py and configuration_llama4.py.
struct MoeLayers {
  std::uint64_t step = 1, first = 0;
  const Json* named = nullptr;

  bool has(MoeRule rule, std::uint64_t i) const {
    switch (rule) {
      case MoeRule::qwen:
        return !contains(named, i) && (i + 1) % step == 0;
      case MoeRule::first_dense:
        return i >= first;
      case MoeRule::interleaved:
        return named != nullptr ? contains(named, i) : (i + 1) % step == 0;
      default:
        return rule == MoeRule::every;
    }
  }
};

// DeepSeek: V3 always chooses groups first, V2 where topk_method says so.
void read_groups(Fields& fields, MoeConfig& moe) {
  std::string method = "group_limited_greedy";
  if (fields.has_default("topk_method")) fields.text("topk_method", method);
  fields.real("routed_scaling_factor", 0, 1e9, moe.scale);
  if (method != "group_limited_greedy") return;
  fields.integer("n_group", 1, kMaxExperts, moe.groups);
  fields.integer("topk_group", 1, kMaxExperts, moe.groups_kept);
  if (!fields.ok()) return;
  const auto wrong = [&](const char* keys, std::uint64_t a, std::uint64_t b, const char* rule) {
    fields.fail({ProblemCode::inconsistent_config, keys, std::to_string(a) + "," + std::to_string(b), rule, ""});
  };
  if (moe.experts % moe.groups != 0) return wrong("num_experts,n_group", moe.experts, moe.groups, "multiple");
  if (moe.groups_kept > moe.groups) return wrong("topk_group,n_group", moe.groups_kept, moe.groups, "at_most");
  // V3 scores a group by its two best experts.
  if (moe.experts / moe.groups < 2) wrong("n_group,num_experts", times(2, moe.groups), moe.experts, "at_most");
}

}  // namespace

void read_moe(Fields& fields, ModelConfig& config) {
  const MoeRule rule = config.style.moe;
  if (rule == MoeRule::none) return;
  MoeConfig& moe = config.moe;
  fields.integer("num_experts", 1, kMaxExperts, moe.experts);
  fields.integer("num_experts_per_tok", 1, kMaxExperts, moe.per_token);
  moe.normalised = config.model_type == "mixtral";
  if (fields.has_default("norm_topk_prob")) fields.flag("norm_topk_prob", moe.normalised);
  moe.width = config.intermediate_size;
  if (fields.has_default("moe_intermediate_size"))
    fields.integer("moe_intermediate_size", 1, kMaxIntermediateSize, moe.width);
  if (fields.has_default("shared_expert_intermediate_size"))
    fields.integer("shared_expert_intermediate_size", 1, kMaxIntermediateSize, moe.shared_width);
  if (fields.has_default("n_shared_experts") && !fields.is_null("n_shared_experts")) {
    std::uint64_t shared = 0;
    fields.integer("n_shared_experts", 0, kMaxExperts, shared);
    moe.shared_width = times(shared, moe.width);
  }
  if (fields.has_default("n_group")) read_groups(fields, moe);
  MoeLayers layers;
  if (rule == MoeRule::qwen) fields.integer("decoder_sparse_step", 1, kMaxLayers, layers.step);
  if (rule == MoeRule::interleaved) {
    fields.integer("interleave_moe_layer_step", 1, kMaxLayers, layers.step);
    moe.shared_width = moe.width;
    fields.integer("intermediate_size_mlp", 1, kMaxIntermediateSize, config.intermediate_size);
  }
  fields.integer("first_k_dense_replace", 0, kMaxLayers, layers.first);
  layers.named = fields.given(rule == MoeRule::interleaved ? "moe_layers" : "mlp_only_layers");
  for (std::uint64_t i = 0; i < config.num_hidden_layers; ++i)
    moe.layers.push_back(layers.has(rule, i));
  if (fields.ok() && moe.per_token > moe.experts)
    fields.fail({ProblemCode::inconsistent_config, "num_experts_per_tok,num_experts",
                 std::to_string(moe.per_token) + "," + std::to_string(moe.experts), "at_most", ""});
}

}  // namespace ledger
