// router.h - which experts a token goes to: the scores of all of them, and how each family chooses among them.
//
// Source: transformers 5.12 models/{mixtral,qwen2_moe,qwen3_moe,olmoe,gpt_oss,deepseek_v2,deepseek_v3}/modeling_*.py.
#pragma once

#include <string>

#include "core/models/decoder_dims.h"
#include "core/models/parameter_adapter.h"

namespace ledger {

// Where every token goes: the router's logits [T,E], the chosen experts' weights and numbers [T,k].
struct Routes {
  Tensor logits, weights, experts;
};

struct Router {
  const char* name = "gate";
  Routing rule = Routing::softmax;
  Dim k;
  bool normalised = false;   // the chosen experts' weights sum to 1
  std::uint64_t groups = 1;  // of experts; only the best `groups_kept` are chosen from
  std::uint64_t groups_kept = 1;
  double scale = 1;         // of the chosen experts' weights
  AdaptedParameter weight;  // [E, h]
  Tensor bias;              // [E], gpt-oss
  Tensor correction;        // [E] fp32, DeepSeek V3: added to scores while choosing; a buffer

  static Router make(ModuleBuilder& builder, const std::string& path, const ModelConfig& config,
                     const DecoderDims& dims);
  Routes forward(const Tensor& hidden) const;  // [T, h]

 private:
  Routes through(const Tensor& hidden) const;
};

}  // namespace ledger
