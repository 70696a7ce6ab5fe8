// PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True - one address range per stream and pool, given memory page by page.
//
// Source: PyTorch 2.6 CUDACachingAllocator.cpp, Note [Expandable Segments] and the functions named below. A range
// begins at a multiple of its page size, so that page borders follow from addresses alone.
#include <algorithm>

#include "core/memory/allocator_rules.h"
#include "core/memory/caching_allocator.h"

namespace ledger {

using namespace rules;

namespace {

// Range when the card's size is unknown: 16 TiB, more than any card holds.
constexpr Bytes kLargestRange = Bytes{1} << 44;

Bytes page_bytes(bool small) {
  return small ? kSmallBuffer : kLargeBuffer;
}

}  // namespace

// get_free_block(): a block that unmapped pages follow ranks by the size that it could grow to, so that the open end of
// the range is kept for what fits nowhere else.
FreeList::Cursor CachingAllocator::best_expandable(const Pool& pool, FreeList::Cursor cursor) const {
  Bytes best = expandable_bytes(blocks_[pool.cached[cursor].block]);
  for (FreeList::Cursor at = pool.cached.next(cursor); at.found(); at = pool.cached.next(at)) {
    const Bytes bytes = expandable_bytes(blocks_[pool.cached[at].block]);
    if (bytes >= best) break;
    best = bytes;
    cursor = at;
  }
  return cursor;
}

Bytes CachingAllocator::expandable_bytes(const Block& block) const {
  if (block.next == kNoBlock || blocks_[block.next].state != State::unmapped) return block.bytes;
  return plus(block.bytes, blocks_[block.next].bytes);
}

// try_allocate_expandable_block(): maps pages after a free block, or fills a gap, until `size` fits. Pages mapped
// before a refusal stay, cached.
BlockId CachingAllocator::grow_expandable(Pool& pool, Bytes size) {
  if (size > options_.limit) return kNoBlock;
  BlockId block = find_room(pool, size);
  if (block == kNoBlock) return kNoBlock;
  if (blocks_[block].state == State::unmapped && !map(block, std::min(blocks_[block].bytes, size))) return kNoBlock;
  while (blocks_[block].bytes < size) {
    const BlockId next = blocks_[block].next;
    if (!map(next, std::min(size - blocks_[block].bytes, blocks_[next].bytes))) return kNoBlock;
    block = next;  // map() merged the free block before it into it
  }
  uncache(block);
  return block;
}

// find_expandable_block(): the lowest address from where free and unmapped blocks in a row hold `size`.
BlockId CachingAllocator::find_room(Pool& pool, Bytes size) {
  for (const BlockId unmapped : pool.unmapped) {
    const BlockId before = blocks_[unmapped].prev;
    const bool from_before = before != kNoBlock && blocks_[before].state != State::live;
    const BlockId first = from_before ? before : unmapped;
    Bytes room = 0;
    for (BlockId at = first; room < size && at != kNoBlock && blocks_[at].state != State::live; at = blocks_[at].next) {
      room = plus(room, blocks_[at].bytes);
    }
    if (room >= size) return first;
  }
  return new_range(pool, size);
}

// A range has 1 1/8 of the card's memory, as in PyTorch: room for pages unmapped early in the range to move to its end.
BlockId CachingAllocator::new_range(Pool& pool, Bytes size) {
  const Bytes page = page_bytes(pool.small);
  const Bytes wanted = std::min(plus(options_.limit, options_.limit / 8), kLargestRange);
  const Bytes bytes = round_up(std::max(wanted, size), page);
  const std::uint64_t begin = round_up(next_address_, page);
  if (begin > kLastAddress || bytes > kLastAddress - begin) return kNoBlock;
  if (store_ != nullptr && !store_->open_range(begin, bytes, page)) return kNoBlock;
  Block block;
  block.address = begin;
  block.bytes = bytes;
  block.state = State::unmapped;
  block.small = pool.small;
  block.stream = pool.stream;
  next_address_ = begin + bytes;
  ++stats_.segments;
  const BlockId id = new_block(block);
  insert_unmapped(id);
  return id;
}

// try_merge_blocks(): joins `neighbour` to `block`, which is on no list, when both are free and alike mapped.
void CachingAllocator::absorb(BlockId block, BlockId neighbour) {
  if (neighbour == kNoBlock || blocks_[neighbour].state != blocks_[block].state) return;
  if (blocks_[neighbour].state == State::cached) {
    uncache(neighbour);
  } else {
    erase_unmapped(neighbour);
  }
  join(block, neighbour);
}

// map_block(): gives memory to the first `bytes` of an unmapped block, rounded up to pages, all or nothing; what is
// mapped joins its free neighbours and is cached under the id `block`.
bool CachingAllocator::map(BlockId block, Bytes bytes) {
  const Bytes mapped = round_up(bytes, page_bytes(blocks_[block].small));
  if (!reserve(blocks_[block].address, mapped)) return false;
  erase_unmapped(block);
  if (mapped < blocks_[block].bytes) insert_unmapped(cut(block, mapped));
  blocks_[block].state = State::cached;
  absorb(block, blocks_[block].prev);
  absorb(block, blocks_[block].next);
  cache(block);
  return true;
}

// unmap_block(): takes the memory from the pages that lie wholly within a cached block; what sticks out stays cached.
void CachingAllocator::unmap_free_pages(BlockId block) {
  const Bytes page = page_bytes(blocks_[block].small);
  const std::uint64_t begin = round_up(blocks_[block].address, page);
  const std::uint64_t end = (blocks_[block].address + blocks_[block].bytes) / page * page;
  if (begin >= end) return;
  uncache(block);
  if (begin > blocks_[block].address) {
    const BlockId rest = cut(block, begin - blocks_[block].address);
    cache(block);
    block = rest;
  }
  if (end - begin < blocks_[block].bytes) cache(cut(block, end - begin));
  unreserve(begin, end - begin);
  blocks_[block].state = State::unmapped;
  absorb(block, blocks_[block].prev);
  absorb(block, blocks_[block].next);
  if (blocks_[block].prev == kNoBlock && blocks_[block].next == kNoBlock) {
    --stats_.segments;  // release_expandable_segment(): the range is empty and its addresses are not used again
    if (store_ != nullptr) store_->close_range(blocks_[block].address);
    spare_.push_back(block);
    return;
  }
  insert_unmapped(block);
}

void CachingAllocator::insert_unmapped(BlockId block) {
  std::vector<BlockId>& list = pool_of(blocks_[block]).unmapped;
  const auto by_address = [this](BlockId a, BlockId b) { return blocks_[a].address < blocks_[b].address; };
  list.insert(std::lower_bound(list.begin(), list.end(), block, by_address), block);
}

void CachingAllocator::erase_unmapped(BlockId block) {
  std::vector<BlockId>& list = pool_of(blocks_[block]).unmapped;
  list.erase(std::find(list.begin(), list.end(), block));
}

}  // namespace ledger
