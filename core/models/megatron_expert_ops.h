// megatron_expert_ops.h - what Megatron-Core's mixtures of experts run: the router, the way of tokens to their experts
// and back, and products group by group.
//
// Source: Megatron-LM megatron/core/transformer/moe/{router,moe_utils,token_dispatcher}.py (the dispatcher alltoall,
// without moe_permute_fusion), tensor_parallel/mappings.py, fusions/fused_bias_swiglu.py; TransformerEngine pytorch/
// module/grouped_linear.py, 2026. Tokens are rows here. Every expert gets as many of them as the next: sizes depend on
// it.
#pragma once

#include "core/models/megatron_ops.h"

namespace ledger::megatron {

// router_gating_linear, in the tokens' dtype (moe_router_dtype is not set): saves x.
Tensor gating_linear(const Tensor& x, const Tensor& weight);

// topk_routing_with_score_function with softmax: probabilities [T, E], 0 where a token does not go, and a mask of where
// it does. `after`: of the chosen logits alone (the default), else of all of them (moe_router_pre_softmax).
// `sequences`: of the batch. Really run, experts take turns (as with --moe-router-force-load-balancing), whatever the
// logits say.
struct Routed {
  Tensor probabilities, map;
};
Routed route(const Tensor& logits, Dim k, bool after, std::uint64_t sequences);

// permute: a row for each visit of a token to an expert, by expert, and the probability of each. `places`: which
// tokens.
struct Permuted {
  Tensor tokens, probabilities, places;
};
Permuted permute(const Tensor& tokens, const Routed& routing, Dim visits);
// unpermute: visits added up to [T, h]. `twice`: as deterministic algorithms are asked for, in zeros made again.
Tensor unpermute(const Tensor& visits, const Tensor& places, const Shape& tokens, bool twice);

// Rows to the ranks that have other experts, or that cut the same, and back, as many to each: all_to_all, gather_from_
// and reduce_scatter_to_sequence_ parallel_region. Of one rank: itself.
Tensor exchange(const Tensor& rows, std::uint64_t ranks);
Tensor gather_rows(const Tensor& rows, std::uint64_t ranks);
Tensor scatter_rows(const Tensor& rows, std::uint64_t ranks);

// sort_chunks_by_idxs: chunks of [outer, inner] as [inner, outer].
Tensor swap_chunks(const Tensor& rows, std::uint64_t outer, std::uint64_t inner);

// GroupedLinear: x [R, in], in as many groups as weight [E, out, in] has matrices. Saves x.
Tensor grouped_linear(const Tensor& x, const Tensor& weight, const Tensor& main_gradient);

// weighted_bias_swiglu_impl: x [R, 2 ffn], each row times its probability [R, 1]. Saves both.
Tensor weighted_swiglu(const Tensor& x, const Tensor& probabilities);

}  // namespace ledger::megatron
