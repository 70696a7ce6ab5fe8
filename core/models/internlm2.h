// internlm2.h - what only InternLM2 does: queries, keys and values of one product, group by group; rotary tables made
// in every layer; and a written-out mask with a column more than there are keys.
//
// Source: the code that its checkpoints bring along, modeling_internlm2.py as internlm/internlm2_5-7b has it. Its
// file's attn_implementation says which of its attention classes runs, "eager" where it says nothing.
#pragma once

#include "core/models/self_attention.h"

namespace ledger {

// wqkv's product as heads: of each group the queries, which are copied, then its key and its value.
SelfAttention::Heads internlm2_heads(const Tensor& fused, const DecoderDims& dims);

// InternLM2RotaryEmbedding.
struct LayerRotary {
  Tensor inv_freq;           // fp32 [d/2], a buffer of every layer
  double divisor = 0;        // of the positions, with linear scaling
  bool asks_length = false;  // with dynamic scaling: the last position is looked at

  static LayerRotary make(Tape& tape, const ModelConfig& config, const DecoderDims& dims);
  Rotary forward(const Tensor& x, const Tensor& position_ids, const DecoderDims& dims) const;
};

// _update_causal_mask for the written-out attention: [b, 1, s, s] of [s, s + 1] in `dtype`.
Tensor internlm2_mask(Tape& tape, Dim b, Dim s, DType dtype);

}  // namespace ledger
