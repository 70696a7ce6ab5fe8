// t5_attention.h - T5's attention: unscaled scores, to which a bias by distance is added in place, and a softmax in
// fp32; over its own tokens or over the encoder's.
//
// Source: transformers 5.12 models/t5/modeling_t5.py, T5Attention with T5LayerSelfAttention or T5LayerCrossAttention.
#pragma once

#include <string>

#include "core/models/decoder_dims.h"
#include "core/models/norms.h"

namespace ledger {

struct T5Attention {
  const char* place = "layer.0";
  const char* name = "SelfAttention";
  bool both_ways = true;  // an encoder's biases tell keys before from keys after
  Linear q, k, v, o;
  Embedding distances;  // [buckets, heads], of a stack's first layer
  std::int64_t max_distance = 0;
  Norm norm;
  double dropout = 0;
  bool checkpointed = false;  // biases of zeros get a gradient, which reentrant checkpointing once needed

  enum class Over : std::uint8_t { itself, encoder };
  static T5Attention make(ModuleBuilder& builder, const std::string& path, Over over, const ModelConfig& config,
                          const DecoderDims& dims, bool has_distances);

  // hidden + attention(norm(hidden)). `bias` [1, heads, s, keys] is made, with the mask in it, where it is empty. Keys
  // and values are the hidden states' own where `encoded` is empty.
  Tensor forward(const Tensor& hidden, const Tensor& mask, const Tensor& encoded, Tensor& bias) const;

 private:
  Tensor attend(const Tensor& hidden, const Tensor& mask, const Tensor& states, Tensor& bias) const;
  Tensor make_bias(const Tensor& scores, const Tensor& mask) const;
  Tensor compute_bias(Tape& tape, Dim queries, Dim keys) const;

  Dim heads_, width_;  // width_: of a head
};

}  // namespace ledger
