// which_gpu.h - the GPU of a rank: its number among the ranks of its machine, and no two ranks on one.
#pragma once

#include <string>

#include "probe/cuda/availability.h"
#include "probe/measured_device.h"
#include "probe/ranks/communicator.h"
#include "probe/ranks/launcher.h"

namespace ledger::cuda {

struct ChosenGpu {
  int number = 0;     // among those that this process sees
  std::string error;  // one sentence: there are fewer GPUs than ranks
};

// A launcher that shows each rank one GPU (CUDA_VISIBLE_DEVICES) has chosen already.
ChosenGpu gpu_of_rank(const RankPlace& place, const Facts& facts);

// Two ranks on one GPU, said by all ranks in the same words; empty where each has its own, or a rank was lost.
std::string shared_gpu(Communicator& ranks, const DeviceFacts& facts);

}  // namespace ledger::cuda
