#include "core/memory/caching_allocator.h"

#include <algorithm>

#include "core/memory/allocator_rules.h"

namespace ledger {

using namespace rules;

CachingAllocator::CachingAllocator(AllocatorOptions options, SegmentStore* store)
    : options_(options), store_(store), next_address_(kFirstAddress) {
  for (std::size_t i = 0; i < pools_.size(); ++i) {
    pools_[i].small = i % 2 == 0;
    pools_[i].stream = static_cast<Stream>(i / 2);
  }
  blocks_.reserve(1024);
  spare_.reserve(1024);
}

BlockId CachingAllocator::allocate(Bytes bytes, Stream stream) {
  const Bytes size = round_up(std::max(bytes, kMinBlockSize), kMinBlockSize);
  Pool& pool = pools_[index_of(stream, size <= kSmallSize)];
  BlockId block = take_cached(pool, size);
  if (block == kNoBlock) block = grow(pool, size);
  if (block == kNoBlock) {
    give_back_cached();
    ++stats_.retries;  // as PyTorch: also when there was nothing to give back
    block = grow(pool, size);
  }
  if (block == kNoBlock) {
    refused_ = segment_bytes(size);
    return kNoBlock;
  }
  Block& taken = blocks_[block];
  taken.state = State::live;
  taken.requested = bytes;
  stats_.allocated = plus(stats_.allocated, taken.bytes);
  stats_.requested = plus(stats_.requested, bytes);
  return block;
}

// free_block(). A free neighbour grows where it stands in the list, most often without moving there.
void CachingAllocator::release(BlockId block) {
  Block& freed = blocks_[block];
  stats_.allocated -= freed.bytes;
  stats_.requested -= freed.requested;
  freed.state = State::cached;
  const bool prev_free = freed.prev != kNoBlock && blocks_[freed.prev].state == State::cached;
  const bool next_free = freed.next != kNoBlock && blocks_[freed.next].state == State::cached;
  if (!prev_free && !next_free) return cache(block);
  if (prev_free && next_free) {
    uncache(freed.prev);
    join(block, freed.prev);
  }
  const BlockId host = next_free ? freed.next : freed.prev;
  const FreeList::Cursor place = place_of(host);
  join(host, block);
  pool_of(blocks_[host]).cached.replace(place, entry(host));
}

BlockId CachingAllocator::new_block(const Block& block) {
  if (spare_.empty()) {
    blocks_.push_back(block);
    return static_cast<BlockId>(blocks_.size() - 1);
  }
  const BlockId id = spare_.back();
  spare_.pop_back();
  blocks_[id] = block;
  return id;
}

// Shortens `block` to `bytes`; returns a new block with the rest, in the same state and on no list yet.
BlockId CachingAllocator::cut(BlockId block, Bytes bytes) {
  Block rest = blocks_[block];
  rest.address += bytes;
  rest.bytes -= bytes;
  rest.prev = block;
  const BlockId id = new_block(rest);
  if (rest.next != kNoBlock) blocks_[rest.next].prev = id;
  blocks_[block].bytes = bytes;
  blocks_[block].next = id;
  return id;
}

FreeList::Entry CachingAllocator::entry(BlockId block) const {
  return {blocks_[block].bytes, blocks_[block].address, block};
}

FreeList::Cursor CachingAllocator::place_of(BlockId block) const {
  const Block& cached = blocks_[block];
  return pool_of(cached).cached.first_not_below(cached.bytes, cached.address);
}

void CachingAllocator::cache(BlockId block) {
  pool_of(blocks_[block]).cached.insert(entry(block));
}

void CachingAllocator::uncache(BlockId block) {
  pool_of(blocks_[block]).cached.erase(place_of(block));
}

// Makes `part`, a neighbour on no list, a part of `block`; its id is free again.
void CachingAllocator::join(BlockId block, BlockId part) {
  Block& dst = blocks_[block];
  const Block& src = blocks_[part];
  if (dst.prev == part) {
    dst.address = src.address;
    dst.prev = src.prev;
    if (dst.prev != kNoBlock) blocks_[dst.prev].next = block;
  } else {
    dst.next = src.next;
    if (dst.next != kNoBlock) blocks_[dst.next].prev = block;
  }
  dst.bytes += src.bytes;
  spare_.push_back(part);
}

// should_split(): a large block keeps a tail of up to 1 MiB, which then counts as allocated.
bool CachingAllocator::splits(const Pool& pool, Bytes rest) const {
  return pool.small || options_.expandable_segments ? rest >= kMinBlockSize : rest > kSmallSize;
}

// get_free_block() and the split: the best fit, off the list; what is left of it keeps its id and, mostly, its place.
BlockId CachingAllocator::take_cached(Pool& pool, Bytes size) {
  FreeList::Cursor fit = pool.cached.first_not_below(size);
  if (!fit.found()) return kNoBlock;
  if (options_.expandable_segments) fit = best_expandable(pool, fit);
  const BlockId found = pool.cached[fit].block;
  if (!splits(pool, blocks_[found].bytes - size)) {
    pool.cached.erase(fit);
    return found;
  }
  Block front = blocks_[found];
  front.bytes = size;
  front.next = found;
  const BlockId id = new_block(front);
  if (front.prev != kNoBlock) blocks_[front.prev].next = id;
  Block& rest = blocks_[found];
  rest.prev = id;
  rest.address += size;
  rest.bytes -= size;
  pool.cached.replace(fit, entry(found));
  return id;
}

// A block of `size` in memory that the driver gave for it, off the list; the rest is cached.
BlockId CachingAllocator::grow(Pool& pool, Bytes size) {
  const BlockId block =
      options_.expandable_segments ? grow_expandable(pool, size) : new_segment(pool, segment_bytes(size));
  if (block != kNoBlock && splits(pool, blocks_[block].bytes - size)) cache(cut(block, size));
  return block;
}

BlockId CachingAllocator::new_segment(Pool& pool, Bytes bytes) {
  if (bytes > kLastAddress - next_address_ || !reserve(next_address_, bytes)) return kNoBlock;
  Block block;
  block.address = next_address_;
  block.bytes = bytes;
  block.small = pool.small;
  block.stream = pool.stream;
  next_address_ += bytes;
  ++stats_.segments;
  return new_block(block);
}

bool CachingAllocator::reserve(std::uint64_t address, Bytes bytes) {
  const Bytes total = plus(stats_.reserved, bytes);
  if (total > options_.limit) return false;
  if (store_ != nullptr && !store_->reserve(address, bytes)) return false;
  stats_.reserved = total;
  return true;
}

void CachingAllocator::unreserve(std::uint64_t address, Bytes bytes) {
  if (store_ != nullptr) store_->release(address, bytes);
  stats_.reserved -= bytes;
}

void CachingAllocator::give_back_cached() {
  for (const bool small : {false, true}) {
    for (Pool& pool : pools_) {
      if (pool.small == small) give_back_cached(pool);
    }
  }
}

// release_blocks(): segments that are one free block each; of expandable ranges, every page that is wholly free.
void CachingAllocator::give_back_cached(Pool& pool) {
  scratch_.clear();
  for (FreeList::Cursor at = pool.cached.first_not_below(0); at.found(); at = pool.cached.next(at)) {
    scratch_.push_back(pool.cached[at].block);
  }
  for (const BlockId id : scratch_) {
    if (options_.expandable_segments) {
      unmap_free_pages(id);
      continue;
    }
    const Block& block = blocks_[id];
    if (block.prev != kNoBlock || block.next != kNoBlock) continue;
    uncache(id);
    unreserve(block.address, block.bytes);
    --stats_.segments;
    spare_.push_back(id);
  }
}

}  // namespace ledger
