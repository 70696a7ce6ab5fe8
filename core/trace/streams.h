// streams.h - whose memory comes from a side stream's pool: the caching allocator hands a block to the stream it was
// made for, and to no other.
//
// Sources: torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py (2.14): foreach_all_gather copies in and gathers on
// a stream of its own; foreach_reduce makes its output, which becomes the gradients of the shards, on another.
// DeepSpeed with overlap_comm: runtime/zero/partitioned_param_coordinator.py, __all_gather_params_; stage3.py,
// __reduce_and_partition_ipg_grads; stage_1_and_2.py, average_tensor (0.19.6). Their scopes tell these storages apart.
#pragma once

#include <cstdint>

namespace ledger {

enum class Stream : std::uint8_t { compute, all_gather, reduce_scatter, count_ };

inline constexpr const char* kAllGatherScope = "fsdp.all_gather";
inline constexpr const char* kReduceScatterScope = "fsdp.reduce_scatter";
inline constexpr const char* kZeroGatherScope = "zero.all_gather";
inline constexpr const char* kZeroGatheredScope = "zero.gathered";
inline constexpr const char* kZeroReduceScope = "zero.reduce";

}  // namespace ledger
