// gpu_ranks.h - the ranks of a run on GPUs: their processes connected, held against each other, and NCCL between their
// GPUs.
#pragma once

#include <memory>

#include "probe/cuda/nccl_communicator.h"
#include "probe/ranks/join.h"
#include "probe/ranks/message_plan.h"

namespace ledger::cuda {

struct GpuRanks {
  Joined processes;                        // `ranks` is null when it failed
  std::unique_ptr<Nccl> library;           // null where there is one rank, or one process in the place of one
  std::unique_ptr<NcclCommunicator> gpus;  // as above
  StageTurns messages;                     // what stages of a pipeline agreed on
};

// All ranks must have the same NCCL, and each a GPU of its own; what is wrong is said by all of them. `trace`: this
// rank's, of what they will run; nullptr where that is no trace.
GpuRanks join_gpu_ranks(const RankChoice& choice, Plan plan, double timeout_s, MeasuredDevice& device,
                        const Trace* trace);

}  // namespace ledger::cuda
