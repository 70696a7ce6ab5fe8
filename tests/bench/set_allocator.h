// set_allocator.h - the caching allocator as PyTorch writes it: a std::set of free blocks ordered by (size, address)
// and blocks from the heap, linked within their segment. The baseline that core/memory is timed against.
#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "core/base/bytes.h"
#include "core/memory/allocator_rules.h"

namespace ledger {

class SetAllocator {
 public:
  struct Block {
    std::uint64_t address;
    Bytes bytes;
    Block* prev = nullptr;
    Block* next = nullptr;
    bool small = false;
    bool live = false;
  };

  ~SetAllocator() {
    for (Block* segment : segments_) {
      for (Block* block = segment; block != nullptr;)
        delete std::exchange(block, block->next);
    }
  }

  Block* allocate(Bytes request) {
    const Bytes size = round_up(request, rules::kMinBlockSize);
    const bool small = size <= rules::kSmallSize;
    Pool& pool = pools_[small ? 0 : 1];
    Block key{0, size};
    const auto found = pool.lower_bound(&key);
    Block* block = found == pool.end() ? new_segment(size, small) : *found;
    if (found != pool.end()) pool.erase(found);
    const Bytes rest = block->bytes - size;
    if (small ? rest >= rules::kMinBlockSize : rest > rules::kSmallSize) pool.insert(cut(block, size));
    block->live = true;
    allocated += block->bytes;
    return block;
  }

  void release(Block* block) {
    Pool& pool = pools_[block->small ? 0 : 1];
    allocated -= block->bytes;
    block->live = false;
    if (block->next != nullptr && !block->next->live) absorb(pool, block, block->next);
    if (block->prev != nullptr && !block->prev->live) {
      Block* const prev = block->prev;
      pool.erase(prev);
      merge(prev, block);
      block = prev;
    }
    pool.insert(block);
  }

  Bytes allocated = 0;

 private:
  struct BySize {
    bool operator()(const Block* a, const Block* b) const {
      return a->bytes != b->bytes ? a->bytes < b->bytes : a->address < b->address;
    }
  };
  using Pool = std::set<Block*, BySize>;

  Block* new_segment(Bytes size, bool small) {
    const Bytes bytes = rules::segment_bytes(size);
    auto* block = new Block{next_address_, bytes};
    block->small = small;
    next_address_ += bytes;
    segments_.push_back(block);
    return block;
  }

  static Block* cut(Block* block, Bytes size) {
    auto* rest = new Block{block->address + size, block->bytes - size};
    rest->small = block->small;
    rest->prev = block;
    rest->next = block->next;
    if (rest->next != nullptr) rest->next->prev = rest;
    block->next = rest;
    block->bytes = size;
    return rest;
  }

  static void merge(Block* block, Block* next) {
    block->bytes += next->bytes;
    block->next = next->next;
    if (block->next != nullptr) block->next->prev = block;
    delete next;
  }

  static void absorb(Pool& pool, Block* block, Block* next) {
    pool.erase(next);
    merge(block, next);
  }

  std::array<Pool, 2> pools_;  // small, large
  std::vector<Block*> segments_;
  std::uint64_t next_address_ = rules::kFirstAddress;
};

}  // namespace ledger
