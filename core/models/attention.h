// attention.h - the attention implementations that transformers dispatches to, and PyTorch's choice among its kernels.
#pragma once

#include "core/config/recipe.h"
#include "core/trace/operators.h"

namespace ledger {

struct AttentionOptions {
  double scale = 0;          // of the scores; 0: 1/sqrt(d)
  double dropout = 0;        // of the probabilities
  double softcap = 0;        // eager only: transformers' sdpa_attention.py has no such argument
  bool fp32_softmax = true;  // eager only
  bool causal = true;
  bool divides = false;  // eager only: scores over the inverse of their scale
};

struct Attended {
  Tensor output;   // [b, s, nh, d]
  Tensor weights;  // eager only: returned to the decoder layer, which holds it until it ends
};

// transformers integrations/sdpa_attention.py, repeat_kv: a copy of [b,nkv,s,d] at all `heads` query heads; itself when
// there are as many.
Tensor repeat_kv(const Tensor& x, Dim heads);

// q [b,nh,s,d], k and v [b,nkv,c,d], c >= s. `mask` is make_mask's, or empty where the last s keys are those of the
// queries and is_causal says all.
Attended attend(Attention kind, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                const AttentionOptions& options = {});

// gpt-oss's own: beside its scores every query has the logit of its head's sink [nh], which takes probability and gives
// no value.
Attended attend_with_sinks(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, const Tensor& sinks,
                           const AttentionOptions& options);

// Which keys the queries see, as transformers' masking_utils put it.
struct MaskShape {
  Dim b{1, Sym::none};  // 1 unless a padding mask is given, which generate always does
  Dim s, keys;
  std::uint64_t before = 0;  // keys that stand before the queries' own
  std::uint64_t window = 0;  // tokens to look back; 0: all
  std::uint64_t chunk = 0;   // tokens that see each other and no others; 0: all
  bool always = false;       // a static cache: its unused end is to be hidden
};

// The mask [b,1,s,keys] for `kind`: eager adds one in `dtype`, sdpa takes a boolean one where is_causal does not do (a
// window that is full, a static cache), flash attention none.
Tensor make_mask(Attention kind, Tape& tape, const MaskShape& shape, DType dtype);

// What scaled_dot_product_attention runs for tensors of `dtype` without a mask. Source: ATen/native/transformers/cuda/
// sdp_utils.cpp: flash wants 16 bits; the memory-efficient kernel takes fp32 but no grouped heads; math takes anything.
Attention sdpa_kernel(DType dtype, bool grouped);

}  // namespace ledger
