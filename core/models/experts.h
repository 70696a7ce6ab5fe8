// experts.h - a mixture of experts: the router that chooses them, and their MLPs as grouped products.
//
// Source: transformers 5.12 integrations/moe.py, grouped_mm_experts_forward, the implementation it takes by default
// where PyTorch has _grouped_mm (2.9 and later); models/{mixtral,qwen2_moe,qwen3_moe,olmoe}/modeling_*.py. No token is
// dropped: sizes do not depend on which expert a token goes to.
#pragma once

#include <optional>
#include <string>

#include "core/models/decoder_dims.h"
#include "core/models/feed_forward.h"
#include "core/models/parameter_adapter.h"

namespace ledger {

// Where every token goes: the router's logits [T,E], the chosen experts' weights and numbers [T,k].
struct Routes {
  Tensor logits, weights, experts;
};

struct Router {
  Routing rule = Routing::softmax;
  Dim k;
  bool normalised = false;  // the chosen experts' weights sum to 1
  AdaptedParameter weight;  // [E, h]

  static Router make(ModuleBuilder& builder, const std::string& path, const ModelConfig& config,
                     const DecoderDims& dims);
  Routes forward(const Tensor& hidden) const;  // [T, h]
};

struct Experts {
  Act act = Act::silu;
  AdaptedParameter gate_up, down;  // [E, 2 ffn_e, h], [E, h, ffn_e]

  static Experts make(ModuleBuilder& builder, const std::string& path, const ModelConfig& config,
                      const DecoderDims& dims);
  Tensor forward(const Tensor& hidden, const Routes& routes) const;  // [T, h] -> [T, h]
};

// What stands in place of a decoder layer's MLP.
struct MixtureOfExperts {
  Router router;
  Experts experts;
  std::optional<FeedForward> shared;  // the expert that every token visits
  Linear shared_gate;                 // its weight, where it has one

  static MixtureOfExperts make(ModuleBuilder& builder, const std::string& path, const ModelConfig& config,
                               const DecoderDims& dims);
  Tensor forward(const Tensor& hidden) const;  // [b, s, h]
};

}  // namespace ledger
