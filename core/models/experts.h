// experts.h - a mixture of experts: their MLPs as grouped products, and the blocks that join them to their router.
//
// Source: transformers 5.12 integrations/moe.py, grouped_mm_experts_forward, the implementation it takes by default
// where PyTorch has _grouped_mm (2.9 and later); models/{mixtral,qwen2_moe,qwen3_moe,olmoe,gpt_oss,deepseek_v2,
// deepseek_v3}/modeling_*.py. No token is dropped: sizes do not depend on which expert a token goes to.
#pragma once

#include <optional>
#include <string>

#include "core/models/feed_forward.h"
#include "core/models/router.h"

namespace ledger {

// [b, s, h] as [b*s, h].
Tensor rows_of(const Tensor& hidden);

struct Experts {
  Act act = Act::silu;
  AdaptedParameter gate_up, down;  // [E, 2 ffn_e, h], [E, h, ffn_e]; the other way round where transposed
  Tensor gate_up_bias, down_bias;  // [E, 2 ffn_e], [E, h], gpt-oss
  bool transposed = false;

  static Experts make(ModuleBuilder& builder, const std::string& path, const ModelConfig& config,
                      const DecoderDims& dims);
  Tensor forward(const Tensor& hidden, const Routes& routes) const;  // [T, h] -> [T, h]

 private:
  Tensor through(const Tensor& hidden, const Routes& routes) const;
};

// What stands in place of a decoder layer's MLP.
struct MixtureOfExperts {
  const char* name = "mlp";
  Router router;
  Experts experts;
  std::optional<FeedForward> shared;  // the expert that every token visits
  Linear shared_gate;                 // its weight, where it has one
  bool shared_last = false;           // it runs after the experts, not before

  static MixtureOfExperts make(ModuleBuilder& builder, const std::string& path, const ModelConfig& config,
                               const DecoderDims& dims);
  Tensor forward(const Tensor& hidden) const;  // [b, s, h]
};

}  // namespace ledger
