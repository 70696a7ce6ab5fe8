#include "tests/gpu/ranks_check.h"

#include <cstdio>
#include <cstdlib>

#include "probe/cuda/gpu_ranks.h"
#include "probe/cuda/run_cuda.h"
#include "probe/cuda/which_gpu.h"
#include "probe/ranks/stand_in.h"
#include "tests/probe/cuda/collective_cases.h"

namespace ledger {
namespace {

constexpr double kTimeout = 60;

bool refused(JsonWriter& out, const std::string& problem) {
  out.member("problem", problem);
  std::fprintf(stderr, "probe_gpu_check: %s.\n", problem.c_str());
  return false;
}

// Twice: what is made at the first calls is there at the second.
bool compare(JsonWriter& out, Communicator& host, cuda::NcclCommunicator& gpus, MeasuredDevice& device, unsigned seed) {
  const collective_cases::Sides sides{host, gpus, device};
  std::string problem = collective_cases::differences(sides, seed);
  const NcclMemory memory = gpus.memory();
  const Bytes once = device.bytes_in_use();
  if (problem.empty()) problem = collective_cases::differences(sides, seed + 1);
  std::uint8_t last = 0;  // nobody leaves before all are through
  if (problem.empty() && !host.all_reduce({reinterpret_cast<std::byte*>(&last), 1, DType::u8}, ReduceOp::largest))
    problem = host.failure();
  const auto again = static_cast<std::int64_t>(device.bytes_in_use()) - static_cast<std::int64_t>(once);
  Bytes init = 0, connect = 0;
  for (const NcclMemory::OfCommunicator& one : memory.communicators) {
    init = plus(init, one.init_bytes);
    connect = plus(connect, one.connect_bytes);
  }
  out.member("ranks", gpus.world()).member("init_bytes", init).member("connect_bytes", connect);
  out.member("again_bytes", again).key("stats_bytes");
  if (memory.stats_bytes) {
    out.value(*memory.stats_bytes);
  } else {
    out.null();
  }
  return problem.empty() || refused(out, problem);
}

}  // namespace

bool check_ranks(JsonWriter& out, unsigned seed) {
  const FoundPlace found = find_place([](const char* name) { return std::getenv(name); });
  if (!found.error.empty()) return refused(out, found.error);
  const cuda::ChosenGpu chosen = cuda::gpu_of_rank(found.place, cuda::collect_facts());
  if (!chosen.error.empty()) return refused(out, chosen.error);
  const cuda::OpenedGpu gpu = cuda::open_gpu(chosen.number, true);
  if (gpu.device == nullptr) return refused(out, gpu.error);
  if (found.place.world == 1) {
    const cuda::Nccl library;
    out.member("nccl", library.version());
    if (!library.problem().empty()) return refused(out, library.problem());
    StandIn alone(0, 1);
    cuda::NcclCommunicator ranks(library, *gpu.device, alone, kTimeout);
    return compare(out, alone, ranks, *gpu.device, seed);
  }
  RankChoice choice;
  choice.place = found.place;
  const cuda::GpuRanks ranks = cuda::join_gpu_ranks(choice, {}, kTimeout, *gpu.device, nullptr);
  if (ranks.gpus == nullptr) return refused(out, ranks.processes.error);
  out.member("nccl", ranks.library->version());
  return compare(out, *ranks.processes.ranks, *ranks.gpus, *gpu.device, seed);
}

}  // namespace ledger
