// caching_allocator.h - PyTorch's CUDA caching allocator, block for block, over any source of segments.
//
// Source of the rules: PyTorch c10/cuda/CUDACachingAllocator.cpp (2.6) and c10/core/AllocatorConfig.h (2.14), one stream.
// The same class predicts (no store), runs the host executor and runs CUDA, so `reserved` cannot drift between them:
// placement is decided on virtual addresses that rise monotonically, never on the driver's.
// Left out: several streams, record_stream, garbage_collection_threshold, roundup_power2_divisions.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/bytes.h"

namespace ledger {

// Where segments come from. reserve() returns false when the device refuses (out of memory).
class SegmentStore {
 public:
  virtual ~SegmentStore() = default;
  virtual bool reserve(std::uint64_t virtual_address, Bytes bytes) = 0;
  virtual void release(std::uint64_t virtual_address, Bytes bytes) = 0;
};

struct AllocatorOptions {
  bool expandable_segments = false;
  Bytes limit = kOverflow;  // reserve() beyond this total is refused, as a full card would
};

struct AllocatorStats {
  Bytes allocated = 0;      // sum of live blocks: torch.cuda.memory_allocated()
  Bytes reserved = 0;       // sum of segments (expandable: mapped bytes): torch.cuda.memory_reserved()
  Bytes requested = 0;      // sum of unrounded requests
  std::uint64_t segments = 0;
  std::uint64_t retries = 0;  // times cached blocks were given back to satisfy a request
};

using BlockId = std::uint32_t;
inline constexpr BlockId kNoBlock = ~BlockId{0};

class CachingAllocator {
 public:
  explicit CachingAllocator(AllocatorOptions options = {}, SegmentStore* store = nullptr);

  // A block of at least `bytes` (> 0), or kNoBlock when the limit or the store refuses even after cached blocks are freed.
  BlockId allocate(Bytes bytes);
  void release(BlockId block);

  std::uint64_t address(BlockId block) const;  // virtual; the store maps segment addresses to real memory
  Bytes block_bytes(BlockId block) const;      // what `allocated` counts for it
  const AllocatorStats& stats() const { return stats_; }

  // Bytes that the last refused allocate() asked of the driver (segment size, what PyTorch's message prints).
  Bytes refused_segment_bytes() const { return refused_; }

 private:
  // The implementer chooses the representation; keep allocate/release free of heap traffic in the steady state.
  AllocatorOptions options_;
  SegmentStore* store_;
  AllocatorStats stats_;
  Bytes refused_ = 0;
};

}  // namespace ledger
