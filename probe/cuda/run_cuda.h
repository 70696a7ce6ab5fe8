// run_cuda.h - a GPU of those that CUDA_VISIBLE_DEVICES leaves, opened for a measured run.
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

// The name and size of the GPU with this number, without a context on it.
DeviceFacts gpu_facts(int number);

// Creates the context, loads libraries, and counts what both take. Refused where others compute on the GPU, unless
// `allow_busy`. In a build without CUDA there is nothing to open: why_not() of availability.h has said so before.
OpenedGpu open_gpu(int number, bool allow_busy);

}  // namespace ledger::cuda
