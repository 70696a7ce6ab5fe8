// parameter_adapter.h - LoRA on a parameter that no linear layer holds: a router's weight, the stacked weights of
// experts. The whole update is made in every forward pass and added to the weight.
//
// Source: peft 0.20 tuners/lora/layer.py, ParamWrapper and _LoraParameterProxy; torch nn/utils/parametrize.py.
#pragma once

#include <optional>
#include <string>

#include "core/config/model_config.h"
#include "core/models/modules.h"

namespace ledger {

struct AdaptedParameter {
  Tensor weight;  // [out, in], or [E, out, in]
  std::optional<Adapter> adapter;

  // While the wrapping module runs: the update, in the weight's dtype, and once computed, the weight with it.
  struct Active {
    Tensor delta, sum;
  };
  Active activate() const;                  // empty without an adapter
  const Tensor& use(Active& active) const;  // what the wrapped module computes with

 private:
  Tensor delta() const;
};

// Which linear layers of transformers 4 the parameters of experts were, as `targets` still names them.
// Source: peft 0.20 utils/transformers_weight_conversion.py, _MOE_TARGET_MODULE_MAPPING.
struct ExpertTargets {
  const char* router;  // "" where PEFT's wrapper does not work
  const char* gate;    // gate and up are one parameter now: PEFT takes both names or none
  const char* up;
  const char* down;
};

// Of a family whose experts PEFT finds; null otherwise, and of models without experts.
const ExpertTargets* expert_targets(const ModelConfig& config);

}  // namespace ledger
