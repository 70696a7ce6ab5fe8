#include "probe/cuda/run_cuda.h"

#if LEDGER_CUDA
#include "probe/cuda/runtime/cuda_device.h"
#endif

namespace ledger::cuda {

#if LEDGER_CUDA

DeviceFacts gpu_facts(int number) {
  return facts_of_gpu(number);
}

OpenedGpu open_gpu(int number, bool allow_busy) {
  return open_device(number, allow_busy);
}

#else

DeviceFacts gpu_facts(int) {
  return {};
}

OpenedGpu open_gpu(int, bool) {
  return {nullptr, "this build of probe has no CUDA executor", false};
}

#endif

}  // namespace ledger::cuda
