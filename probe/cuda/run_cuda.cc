#include "probe/cuda/run_cuda.h"

#if LEDGER_CUDA
#include "probe/cuda/runtime/cuda_device.h"
#endif

namespace ledger::cuda {

#if LEDGER_CUDA

DeviceFacts gpu_facts() {
  return facts_of_first_gpu();
}

OpenedGpu open_gpu(bool allow_busy) {
  return open_first_gpu(allow_busy);
}

#else

DeviceFacts gpu_facts() {
  return {};
}

OpenedGpu open_gpu(bool) {
  return {nullptr, "this build of probe has no CUDA executor", false};
}

#endif

}  // namespace ledger::cuda
