// run_cuda.h - the GPU that CUDA_VISIBLE_DEVICES leaves first, opened for a measured run.
#pragma once

#include <memory>
#include <string>

#include "probe/measured_device.h"

namespace ledger::cuda {

struct OpenedGpu {
  std::unique_ptr<MeasuredDevice> device;
  std::string error;  // why there is none
  bool busy = false;  // others compute on it: refused, or allowed and said
};

// The GPU's name and size, without a context on it.
DeviceFacts gpu_facts();

// Creates the context, loads libraries, and counts what both take. Refused where others compute on the GPU, unless
// `allow_busy`. In a build without CUDA there is nothing to open: why_not() of availability.h has said so before.
OpenedGpu open_gpu(bool allow_busy);

}  // namespace ledger::cuda
