// host_store.h - the allocator's segments in this process's memory.
//
// Virtual addresses are mapped into a few large arenas of address space at fixed distances, so that a pointer is one
// addition and tensors may span adjacent segments (expandable ones). Pages cost memory only once they are touched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/memory/caching_allocator.h"

namespace ledger {

class HostStore : public SegmentStore {
 public:
  explicit HostStore(Bytes limit = kOverflow) : limit_(limit) {}
  ~HostStore() override;
  HostStore(const HostStore&) = delete;
  HostStore& operator=(const HostStore&) = delete;

  bool reserve(std::uint64_t virtual_address, Bytes bytes) override;
  void release(std::uint64_t virtual_address, Bytes bytes) override;

  // Memory of [virtual_address, virtual_address + bytes), or nullptr where no arena holds all of it.
  std::byte* locate(std::uint64_t virtual_address, Bytes bytes) const;

  Bytes reserved() const { return reserved_; }

 private:
  struct Arena {
    std::uint64_t first = 0;  // virtual address
    Bytes bytes = 0;
    std::byte* memory = nullptr;
  };

  bool add_arena(std::uint64_t first, Bytes at_least);

  Bytes limit_;
  Bytes reserved_ = 0;
  std::vector<Arena> arenas_;  // by rising `first`; a later one takes over where two overlap
};

}  // namespace ledger
