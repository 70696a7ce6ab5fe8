// bloom.h - what only BLOOM does: scores biased by distance (ALiBi), residuals added inside attention and MLP, and a
// GELU with a backward pass of its own.
//
// Source: transformers 5.12 models/bloom/modeling_bloom.py. Its classes know no attention but the written-out one.
#pragma once

#include "core/models/decoder_layer.h"

namespace ledger {

// bloom_gelu_forward; saves its input alone.
Tensor bloom_gelu(const Tensor& x);

// build_alibi_tensor: [b*nh, 1, s] in `dtype`, from the attention mask of ones [b, s].
Tensor make_alibi(const Tensor& ones, Dim heads, DType dtype);

// BloomBlock: the layer's output and the attention weights that it returns beside.
std::pair<Tensor, Tensor> bloom_layer(const DecoderLayer& layer, const Tensor& input, const LayerContext& context,
                                      const DecoderDims& dims);

}  // namespace ledger
