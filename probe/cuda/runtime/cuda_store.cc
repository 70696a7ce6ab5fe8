#include "probe/cuda/runtime/cuda_store.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <iterator>

#include "probe/cuda/availability.h"

namespace ledger::cuda {

std::string error_sentence(const char* call, int code) {
  std::string text = std::string(call) + ": " + cudaGetErrorString(static_cast<cudaError_t>(code)) + " (error " +
                     std::to_string(code) + ")";
  const char* meaning = explain_error(code);
  return meaning == nullptr ? text : text + ": " + meaning;
}

Bytes device_bytes_in_use() {
  std::size_t free = 0, total = 0;
  return cudaMemGetInfo(&free, &total) == cudaSuccess ? total - free : 0;
}

void CudaStore::look() {
  peak_used_ = std::max(peak_used_, device_bytes_in_use());
}

bool CudaStore::reserve(std::uint64_t virtual_address, Bytes bytes) {
  void* memory = nullptr;
  const cudaError_t status = cudaMalloc(&memory, bytes);
  if (status != cudaSuccess) {
    cudaGetLastError();  // being out of memory is a result, and not to be found by the next call
    if (status != cudaErrorMemoryAllocation && error_.empty()) error_ = error_sentence("cudaMalloc", status);
    return false;
  }
  segments_[virtual_address] = {static_cast<std::byte*>(memory), bytes};
  look();
  return true;
}

void CudaStore::release(std::uint64_t virtual_address, Bytes) {
  const auto found = segments_.find(virtual_address);
  if (found == segments_.end()) return;
  cudaFree(found->second.memory);  // waits for the kernels that use it
  segments_.erase(found);
}

void CudaStore::release_all() {
  for (const auto& [address, segment] : segments_)
    cudaFree(segment.memory);
  segments_.clear();
}

std::byte* CudaStore::locate(std::uint64_t virtual_address, Bytes bytes) const {
  const auto after = segments_.upper_bound(virtual_address);
  if (after == segments_.begin()) return nullptr;
  const auto& [first, segment] = *std::prev(after);
  const std::uint64_t offset = virtual_address - first;
  return plus(offset, bytes) <= segment.bytes ? segment.memory + offset : nullptr;
}

}  // namespace ledger::cuda
