// feed_forward.h - the MLP of a decoder layer: gated, gated in one product, or plain; and the activation functions.
#pragma once

#include <string>

#include "core/config/model_config.h"
#include "core/models/modules.h"
#include "core/models/names.h"

namespace ledger {

// transformers activations.py, ACT2CLS.
Tensor activate(Act act, const Tensor& x);

// How a family writes its linear layers.
Product product_of(const ModelConfig& config);

struct FeedForward {
  const char* name = "mlp";
  Feed feed = Feed::gated;
  Act act = Act::silu;
  double dropout = 0;     // of the result
  bool liger = false;     // Liger's fused kernel in its place
  bool compiled = false;  // gated only: silu and the product are one kernel
  Linear gate;            // gated only
  Linear up;              // gated_fused: gate and up side by side
  Linear down;

  static FeedForward make(ModuleBuilder& builder, const std::string& path, const ModelConfig& config,
                          const ModuleNames& names, Dim hidden, Dim width);
  Tensor forward(const Tensor& x) const;
};

}  // namespace ledger
