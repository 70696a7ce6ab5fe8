// decoder_dims.h - the sizes of a decoder as dimensions that know their letter.
#pragma once

#include "core/models/model.h"

namespace ledger {

struct DecoderDims {
  Dim b, s, h, ffn, V, nh, nkv, d, half_d, q_dim, kv_dim;
  Dim experts, ffn_e;
  Dim rot, half_rot;  // of a head, what the rotary embedding turns
};

inline DecoderDims dims_of(const ModelConfig& c, const ModelOptions& o) {
  DecoderDims n{
      .b = {o.batch, Sym::b},
      .s = {o.seq, Sym::s},
      .h = {c.hidden_size, Sym::h},
      .ffn = {c.intermediate_size, Sym::ffn},
      .V = {c.vocab_size, Sym::V},
      .nh = {c.num_attention_heads, Sym::nh},
      .nkv = {c.num_key_value_heads, Sym::nkv},
      .d = {c.head_dim, Sym::d},
      .half_d = {c.head_dim / 2, Sym::half_d},
      .q_dim = {times(c.num_attention_heads, c.head_dim), Sym::q_dim},
      .kv_dim = {times(c.num_key_value_heads, c.head_dim), Sym::kv_dim},
      .experts = {c.moe.experts, Sym::experts},
      .ffn_e = {c.moe.width, Sym::ffn_e},
      .rot = {},
      .half_rot = {},
  };
  const bool partial = c.rotary_dim != 0;
  n.rot = partial ? Dim{c.rotary_dim, Sym::none} : n.d;
  n.half_rot = partial ? Dim{c.rotary_dim / 2, Sym::none} : n.half_d;
  return n;
}

// Of x, [b, s, ...]: its tokens as one dimension.
inline Dim tokens_of(const Tensor& x) {
  return {times(x.dim(0).size, x.dim(1).size), Sym::none};
}

}  // namespace ledger
