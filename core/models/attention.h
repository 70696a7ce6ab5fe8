// attention.h - the attention implementations that transformers dispatches to, and PyTorch's choice among its kernels.
#pragma once

#include "core/config/recipe.h"
#include "core/trace/operators.h"

namespace ledger {

struct Attended {
  Tensor output;   // [b, s, nh, d]
  Tensor weights;  // eager only: returned to the decoder layer, which holds it until it ends
};

// transformers integrations/sdpa_attention.py, repeat_kv: a copy of [b,nkv,s,d] at all `heads` query heads; itself when
// there are as many.
Tensor repeat_kv(const Tensor& x, Dim heads);

// q [b,nh,s,d], k and v [b,nkv,s,d]; `mask` is eager's additive mask or empty.
Attended attend(Attention kind, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask);

// The mask of transformers' masking_utils for `kind`, in the hidden states' dtype, or empty where is_causal does.
Tensor make_mask(Attention kind, Tape& tape, Dim s, DType dtype);

// What scaled_dot_product_attention runs for tensors of `dtype` without a mask. Source: ATen/native/transformers/cuda/
// sdp_utils.cpp: flash wants 16 bits; the memory-efficient kernel takes fp32 but no grouped heads; math takes anything.
Attention sdpa_kernel(DType dtype, bool grouped);

}  // namespace ledger
