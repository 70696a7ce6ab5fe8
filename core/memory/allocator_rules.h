// allocator_rules.h - the allocator's constants, by PyTorch's own names (kMinBlockSize, kSmallSize, ...).
#pragma once

#include <cstdint>

#include "core/base/bytes.h"

namespace ledger::rules {

// PyTorch 2.6 c10/cuda/CUDACachingAllocator.cpp, lines "constexpr size_t k..."; unchanged in 2.14's AllocatorConfig.h.
inline constexpr Bytes kMinBlockSize = 512;         // requests are rounded up to multiples of it
inline constexpr Bytes kSmallSize = kMiB;           // largest request of the small pool
inline constexpr Bytes kSmallBuffer = 2 * kMiB;     // segment, or page of an expandable one, of the small pool
inline constexpr Bytes kLargeBuffer = 20 * kMiB;    // segment for large requests below kMinLargeAlloc; large page
inline constexpr Bytes kMinLargeAlloc = 10 * kMiB;  // from here on a segment is made to measure
inline constexpr Bytes kRoundLarge = 2 * kMiB;      // ... in multiples of this

// Ours: where virtual addresses begin and end. The end leaves sums of two addresses within 64 bits.
inline constexpr std::uint64_t kFirstAddress = std::uint64_t{1} << 40;
inline constexpr std::uint64_t kLastAddress = std::uint64_t{1} << 62;

// get_allocation_size(): what is asked of the driver for a rounded request.
constexpr Bytes segment_bytes(Bytes size) {
  if (size <= kSmallSize) return kSmallBuffer;
  if (size < kMinLargeAlloc) return kLargeBuffer;
  return round_up(size, kRoundLarge);
}

}  // namespace ledger::rules
