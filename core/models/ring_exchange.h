// ring_exchange.h - tokens of all ranks for heads of one, and the order in which a sequence's pieces come from its
// ranks.
//
// Source: TransformerEngine pytorch/attention/dot_product_attention/context_parallel.py, flash_attn_a2a_communicate and
// get_seq_chunk_ids_for_reordering_before_attn, 2026.
#pragma once

#include <vector>

#include "core/models/ring_parts.h"

namespace ledger::ring {

// Parts [parts, ..] of one shape [b, n, s, d], each dense in `like`'s order of memory; one of them.
Tensor new_parts(OpKind op, const Tensor& like, std::uint64_t parts, const Shape& part);
Tensor part_at(const Tensor& parts, std::uint64_t number);
Tensor flat(const Tensor& dense_one);

// A sequence in order from parts that are its ranks' tokens, and back.
Tensor whole_tokens(const Tensor& parts, std::uint64_t count);
Tensor by_tokens(const Tensor& x, std::uint64_t parts);

// One after the other, each beside the next one's preparation. `before`: heads go, tokens come; else the other way.
std::vector<Tensor> exchanged(const std::vector<Tensor>& tensors, std::uint64_t parts, bool before);

// AttnFuncWithCPAndKVAllGather (ring_attention_gather.cc).
Tensor gathered_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Ring& ring);

}  // namespace ledger::ring
