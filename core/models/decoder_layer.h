// decoder_layer.h - one decoder layer of any family, its norms and residuals laid out as the family's code has them.
#pragma once

#include <optional>

#include "core/models/experts.h"
#include "core/models/feed_forward.h"
#include "core/models/self_attention.h"

namespace ledger {

struct DecoderLayer {
  // How the family's code runs it.
  using Code = Tensor (*)(const DecoderLayer& layer, const Tensor& input, const LayerContext& context,
                          const DecoderDims& dims);
  Code code = nullptr;
  Layout layout = Layout::pre;
  SelfAttention self_attn;
  FeedForward mlp;
  std::optional<MixtureOfExperts> moe;  // in its place
  Norm input_norm;
  std::optional<Norm> attention_norm, feed_norm, output_norm;
  double residual_multiplier = 0;

  static DecoderLayer make(ModuleBuilder& builder, const ModelConfig& config, const DecoderDims& dims,
                           std::size_t index);
  // `weights`: what the layer returns beside, where it does; the model holds it until the next layer has run.
  Tensor forward(const Tensor& hidden, const LayerContext& context, const DecoderDims& dims,
                 Tensor* weights = nullptr) const;
};

}  // namespace ledger
