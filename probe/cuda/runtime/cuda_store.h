// cuda_store.h - the allocator's segments in GPU memory, one cudaMalloc each.
#pragma once

#include <map>
#include <string>

#include "core/memory/caching_allocator.h"

namespace ledger::cuda {

class CudaStore : public SegmentStore {
 public:
  CudaStore() = default;
  ~CudaStore() override { release_all(); }
  CudaStore(const CudaStore&) = delete;
  CudaStore& operator=(const CudaStore&) = delete;

  bool reserve(std::uint64_t virtual_address, Bytes bytes) override;
  void release(std::uint64_t virtual_address, Bytes bytes) override;
  void release_all();

  // Memory of [virtual_address, virtual_address + bytes), or nullptr where no segment holds all of it.
  std::byte* locate(std::uint64_t virtual_address, Bytes bytes) const;

  // Most bytes in use on the device, as cudaMemGetInfo tells at each growth.
  Bytes peak_used() const { return peak_used_; }
  void look();
  // The first refusal that was not for lack of memory.
  const std::string& error() const { return error_; }

 private:
  struct Segment {
    std::byte* memory = nullptr;
    Bytes bytes = 0;
  };
  std::map<std::uint64_t, Segment> segments_;  // by virtual address
  Bytes peak_used_ = 0;
  std::string error_;
};

// Bytes in use on the device by everyone; 0 when it cannot be asked.
Bytes device_bytes_in_use();

// "cudaMalloc: out of memory (error 2): what it means".
std::string error_sentence(const char* call, int code);

}  // namespace ledger::cuda
