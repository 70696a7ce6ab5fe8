// llama4.h - what Llama 4 has of its own: experts that all see every token, norms of queries and keys without weights,
// and queries that grow with their position.
//
// Source: transformers 5.12 models/llama4/modeling_llama4.py.
#pragma once

#include "core/models/experts.h"

namespace ledger {

// Llama4TextMoe.forward: the sequence once for each expert, times its score, which is 0 where it was not chosen. No
// memory is spared by choosing.
Tensor through_every_expert(const MixtureOfExperts& moe, const Tensor& hidden);  // [b, s, h]

// Llama4TextL2Norm.
Tensor over_mean_square(const Tensor& x, double eps);

// Llama4TextAttention's temperature: log1p(floor((position + 1) / floor)) * scale + 1.
struct QueryScales {
  Tensor positions, of_queries;  // int64 [s]; fp32 [b, 1, s, 1]
};
QueryScales query_scales(Tape& tape, const DecoderDims& dims, double floor, double scale);
Tensor scaled_queries(const Tensor& queries, const QueryScales& scales);  // [b, nh, s, d]

}  // namespace ledger
