// streams.h - whose memory comes from a side stream's pool: the caching allocator hands a block to the stream it was
// made for, and to no other.
//
// Source: torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py (2.14): foreach_all_gather copies in and gathers on
// a stream of its own; foreach_reduce makes its output, which becomes the gradients of the shards, on another. Their
// scopes tell these storages apart.
#pragma once

#include <cstdint>

namespace ledger {

enum class Stream : std::uint8_t { compute, all_gather, reduce_scatter, count_ };

inline constexpr const char* kAllGatherScope = "fsdp.all_gather";
inline constexpr const char* kReduceScatterScope = "fsdp.reduce_scatter";

}  // namespace ledger
