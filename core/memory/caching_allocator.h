// caching_allocator.h - PyTorch's CUDA caching allocator, block for block, over any source of segments.
//
// Source of the rules: PyTorch c10/cuda/CUDACachingAllocator.cpp (2.6) and c10/core/AllocatorConfig.h (2.14).
// Every stream has pools of its own. The same class predicts (no store), runs the host executor and runs CUDA, so
// `reserved` cannot drift between them: placement is decided on virtual addresses that rise monotonically, never on the
// driver's. Left out: record_stream, garbage_collection_threshold, roundup_power2_divisions, max_split_size.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/base/bytes.h"
#include "core/memory/free_list.h"
#include "core/trace/streams.h"

namespace ledger {

// Where segments come from. reserve() returns false when the device refuses (out of memory). Expandable segments call
// it for the pages they map and unmap: an address may then come back, and tensors span adjacent calls.
class SegmentStore {
 public:
  virtual ~SegmentStore() = default;
  virtual bool reserve(std::uint64_t virtual_address, Bytes bytes) = 0;
  virtual void release(std::uint64_t virtual_address, Bytes bytes) = 0;
  // Of expandable segments: addresses at which pages of `page` bytes will be mapped, and that nothing is mapped at any
  // more. False where there is no room for so many addresses.
  virtual bool open_range(std::uint64_t /*virtual_address*/, Bytes /*bytes*/, Bytes /*page*/) { return true; }
  virtual void close_range(std::uint64_t /*virtual_address*/) {}
};

struct AllocatorOptions {
  bool expandable_segments = false;
  Bytes limit = kOverflow;  // reserve() beyond this total is refused, as a full card would
};

struct AllocatorStats {
  Bytes allocated = 0;         // sum of live blocks: torch.cuda.memory_allocated()
  Bytes reserved = 0;          // sum of segments (expandable: mapped bytes): torch.cuda.memory_reserved()
  Bytes requested = 0;         // sum of unrounded requests
  std::uint64_t segments = 0;  // expandable: address ranges (PyTorch leaves this statistic at 0 there)
  std::uint64_t retries = 0;   // second attempts after giving cached blocks back: num_alloc_retries
};

class CachingAllocator {
 public:
  // The store outlives the allocator, which leaves with it whatever is still reserved at the end.
  explicit CachingAllocator(AllocatorOptions options = {}, SegmentStore* store = nullptr);

  // A block of at least `bytes` (> 0), or kNoBlock when the limit or the store refuses even after cached blocks are
  // freed. Of the pools of `stream`.
  BlockId allocate(Bytes bytes, Stream stream = Stream::compute);
  void release(BlockId block);
  void empty_cache() { give_back_cached(); }  // torch.cuda.empty_cache()

  // Virtual; the store knows where that is in real memory.
  std::uint64_t address(BlockId block) const { return blocks_[block].address; }
  Bytes requested_bytes(BlockId block) const { return blocks_[block].requested; }
  // What `allocated` counts for it.
  Bytes block_bytes(BlockId block) const { return blocks_[block].bytes; }
  const AllocatorStats& stats() const { return stats_; }

  // Bytes that the last refused allocate() asked of the driver (segment size, what PyTorch's message prints).
  Bytes refused_segment_bytes() const { return refused_; }

 private:
  enum class State : std::uint8_t { live, cached, unmapped };

  struct Block {
    std::uint64_t address = 0;
    Bytes bytes = 0;
    Bytes requested = 0;
    BlockId prev = kNoBlock;  // neighbours within the segment
    BlockId next = kNoBlock;
    State state = State::cached;
    bool small = false;
    Stream stream = Stream::compute;
  };

  struct Pool {
    FreeList cached;
    std::vector<BlockId> unmapped;  // expandable only, by address: the parts of its ranges without memory
    bool small = false;
    Stream stream = Stream::compute;
  };

  static std::size_t index_of(Stream stream, bool small) {
    return 2 * static_cast<std::size_t>(stream) + (small ? 0 : 1);
  }
  Pool& pool_of(const Block& block) { return pools_[index_of(block.stream, block.small)]; }
  const Pool& pool_of(const Block& block) const { return pools_[index_of(block.stream, block.small)]; }
  BlockId new_block(const Block& block);
  BlockId cut(BlockId block, Bytes bytes);
  void join(BlockId block, BlockId part);
  FreeList::Entry entry(BlockId block) const;
  FreeList::Cursor place_of(BlockId block) const;
  void cache(BlockId block);
  void uncache(BlockId block);
  bool splits(const Pool& pool, Bytes rest) const;

  BlockId take_cached(Pool& pool, Bytes size);
  BlockId grow(Pool& pool, Bytes size);
  BlockId new_segment(Pool& pool, Bytes bytes);
  bool reserve(std::uint64_t address, Bytes bytes);
  void unreserve(std::uint64_t address, Bytes bytes);
  void give_back_cached();
  void give_back_cached(Pool& pool);

  // Expandable segments: caching_allocator_expandable.cc.
  FreeList::Cursor best_expandable(const Pool& pool, FreeList::Cursor cursor) const;
  Bytes expandable_bytes(const Block& block) const;
  BlockId grow_expandable(Pool& pool, Bytes size);
  BlockId find_room(Pool& pool, Bytes size);
  BlockId new_range(Pool& pool, Bytes size);
  void absorb(BlockId block, BlockId neighbour);
  bool map(BlockId block, Bytes bytes);
  void unmap_free_pages(BlockId block);
  void insert_unmapped(BlockId block);
  void erase_unmapped(BlockId block);

  AllocatorOptions options_;
  SegmentStore* store_;
  AllocatorStats stats_;
  Bytes refused_ = 0;
  std::uint64_t next_address_;
  std::array<Pool, 2 * static_cast<std::size_t>(Stream::count_)> pools_;  // by stream: small, large
  std::vector<Block> blocks_;
  std::vector<BlockId> spare_;    // ids in blocks_ to be used again
  std::vector<BlockId> scratch_;  // candidates of give_back_cached()
};

}  // namespace ledger
