// gpu.h - the GPU catalogue: what CUDA reports as capacity, and what a process takes before the first tensor.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "core/base/bytes.h"

namespace ledger {

struct Gpu {
  const char* id;                    // "h100-80gb"
  const char* name;                  // "NVIDIA H100 80GB"
  Bytes label_bytes;                 // what is printed on the box (80 GB = 80e9 or the vendor's GiB figure)
  Bytes usable_bytes;                // cudaMemGetInfo total, as error messages print it
  std::uint32_t compute_capability;  // 90 for 9.0; decides cuBLAS workspace size
  Bytes context_low_bytes;           // CUDA context + lazily loaded modules of a PyTorch process, smallest seen
  Bytes context_high_bytes;          // largest seen, training kernels loaded
  double dense_bf16_tflops;          // 0 when unknown
  double bandwidth_gb_per_s;         // 0 when unknown
  const char* source;                // where usable_bytes comes from
  const char* context_source;        // where the context figures come from
};

std::span<const Gpu> gpus();
std::span<const char* const> gpu_ids();
const Gpu* find_gpu(std::string_view id);  // nullptr when unknown

// Bytes of one cuBLAS workspace (per handle and stream, inside the caching allocator): 8 519 680 below compute
// capability 9.0, 32 MiB from 9.0 on. Source: PyTorch aten/src/ATen/cuda/CublasHandlePool.cpp,
// parseChosenWorkspaceSize.
Bytes cublas_workspace_bytes(const Gpu& gpu);

}  // namespace ledger
