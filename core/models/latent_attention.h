// latent_attention.h - DeepSeek's queries, keys and values: through narrow products that are normed and widened again,
// with one rotated key for all heads.
//
// Source: transformers 5.12 models/{deepseek_v2,deepseek_v3}/modeling_*.py.
#pragma once

#include <array>
#include <optional>
#include <string>

#include "core/models/norms.h"
#include "core/models/rotary.h"

namespace ledger {

// [b, n, s, d] each; values have a width of their own.
struct LatentHeads {
  Tensor q, k, v;
  std::array<Tensor, 5> locals;  // what else the framework's forward has names for
};

struct LatentProjections {
  Dim rank, nope, rope, value;  // of keys and values together; of a head
  RotaryStyle rotary = RotaryStyle::halves;
  Linear q;  // where queries are not narrowed
  Linear q_a, q_b, kv_a, kv_b;
  std::optional<Norm> q_norm, kv_norm;

  static LatentProjections make(ModuleBuilder& builder, const std::string& path, const ModelConfig& config, Dim hidden);
  LatentHeads forward(const Tensor& hidden, const Rotary& rotary, const DecoderDims& dims) const;
};

}  // namespace ledger
