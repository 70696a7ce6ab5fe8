#include "probe/cuda/gpu_ranks.h"

#include "probe/cuda/which_gpu.h"

namespace ledger::cuda {
namespace {

GpuRanks refused(int code, const std::string& error) {
  GpuRanks ranks;
  ranks.processes.code = code;
  ranks.processes.error = error;
  return ranks;
}

}  // namespace

GpuRanks join_gpu_ranks(const RankChoice& choice, Plan plan, double timeout_s, MeasuredDevice& device,
                        const Trace* trace) {
  GpuRanks ranks;
  const bool several = choice.place.world > 1 && !choice.stand_in;
  if (several) {
    ranks.library = std::make_unique<Nccl>();
    plan.emplace_back("NCCL", ranks.library->version_text());
  }
  ranks.processes = join_ranks(choice, plan, timeout_s);
  if (!several || ranks.processes.ranks == nullptr) return ranks;
  Communicator& control = *ranks.processes.ranks;
  if (!ranks.library->problem().empty()) return refused(kNoGpu, ranks.library->problem());
  const std::string shared = shared_gpu(control, device.facts());
  if (!shared.empty()) return refused(kUsage, shared);
  if (!control.failure().empty()) return refused(kRankLost, control.failure());
  if (trace != nullptr) {
    std::optional<StageTurns> messages = agree_on_messages(*trace, control);
    if (!messages) return refused(kRankLost, control.failure());
    ranks.messages = std::move(*messages);
  }
  ranks.gpus = std::make_unique<NcclCommunicator>(*ranks.library, device, control, timeout_s);
  return ranks;
}

}  // namespace ledger::cuda
