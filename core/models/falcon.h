// falcon.h - how Falcon cuts queries, keys and values out of one product, and adds up its layer.
//
// Source: transformers 5.12 models/falcon/modeling_falcon.py.
#pragma once

#include "core/models/decoder_layer.h"

namespace ledger {

// FalconAttention._split_heads: keys and values are taken by a list of one index, which copies them. Where they belong
// to groups (new_decoder_architecture), all three are written out at all query heads.
SelfAttention::Heads falcon_heads(const Tensor& fused, const DecoderDims& dims, bool grouped);

// FalconDecoderLayer with parallel attention: one norm, or two, and the MLP's output added to in place.
Tensor falcon_layer(const DecoderLayer& layer, const Tensor& input, const LayerContext& context,
                    const DecoderDims& dims);

}  // namespace ledger
