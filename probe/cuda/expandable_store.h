// expandable_store.h - expandable segments in GPU memory: one range of addresses for each pool, memory mapped into it
// page by page, as PyTorch's ExpandableSegment does it (c10/cuda/CUDACachingAllocator.cpp). A page is one allocation of
// the driver's, of 2 MiB in pools of small tensors and 20 MiB in others, and is given back by itself.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/memory/caching_allocator.h"
#include "probe/cuda/driver_memory.h"

namespace ledger::cuda {

class ExpandableStore : public SegmentStore {
 public:
  struct Device {
    int number = 0;
    Bytes total_bytes = 0;
    std::function<void()> settle = nullptr;  // waits for what is queued: unmapping does not
    std::function<void()> grown = nullptr;   // after each growth
  };

  // `table` outlives it.
  ExpandableStore(const driver::MemoryTable& table, Device device) : table_(table), device_(std::move(device)) {}
  ~ExpandableStore() override { release_all(); }
  ExpandableStore(const ExpandableStore&) = delete;
  ExpandableStore& operator=(const ExpandableStore&) = delete;

  // Why this driver or GPU cannot do it; empty when it can.
  std::string why_not() const;

  bool open_range(std::uint64_t virtual_address, Bytes bytes, Bytes page) override;
  void close_range(std::uint64_t virtual_address) override;
  bool reserve(std::uint64_t virtual_address, Bytes bytes) override;
  void release(std::uint64_t virtual_address, Bytes bytes) override;
  void release_all();

  // Memory of [virtual_address, virtual_address + bytes), or nullptr where not all of it is mapped.
  std::byte* locate(std::uint64_t virtual_address, Bytes bytes) const;
  // The first refusal that was not for lack of memory.
  const std::string& error() const { return error_; }

 private:
  struct Range {
    driver::Address base = 0;
    Bytes bytes = 0, page = 0;
    std::vector<std::optional<driver::Handle>> pages;  // up to the last that was mapped

    driver::Address at(std::size_t place) const { return base + page * place; }
  };
  struct Place {
    std::uint64_t range = 0;           // its virtual address
    Bytes offset = 0;                  // in it
    std::size_t first = 0, count = 0;  // pages
  };

  std::optional<Place> find(std::uint64_t virtual_address, Bytes bytes) const;
  bool create(const Place& place);
  bool map(const Place& place);
  void unmap(Range& range, std::size_t first, std::size_t count);
  void drop(std::optional<driver::Handle>& page);
  void give_back(Range& range);
  bool well(const char* call, driver::Status status);
  driver::AllocationProperties properties() const { return {.location = {.id = device_.number}}; }

  const driver::MemoryTable& table_;
  Device device_;
  std::map<std::uint64_t, Range> ranges_;  // by virtual address
  std::string error_;
};

}  // namespace ledger::cuda
