#include "probe/device_run.h"

#include <algorithm>
#include <chrono>

namespace ledger {
namespace {

using Clock = std::chrono::steady_clock;

// Why a run is to end before its time.
class Stops {
 public:
  explicit Stops(const DeviceRunOptions& options) : options_(options) {}
  bool now() {
    if (options_.interrupted && options_.interrupted()) status_ = RunStatus::interrupted;
    const double seconds = std::chrono::duration<double>(Clock::now() - began_).count();
    if (options_.timeout_s > 0 && seconds > options_.timeout_s) status_ = RunStatus::timeout;
    return status_ != RunStatus::ok;
  }
  RunStatus status() const { return status_; }

 private:
  const DeviceRunOptions& options_;
  const Clock::time_point began_ = Clock::now();
  RunStatus status_ = RunStatus::ok;
};

// What was measured before the run ended: the allocator is deterministic, so the part that ran is replayed alone.
Replay replay_of_part(const Trace& trace, const ReplayOptions& options, std::uint32_t last_run) {
  Trace part = trace;
  const auto is_last = [&](const Event& e) { return e.type == EventType::run && e.id == last_run; };
  const auto end = std::find_if(part.events.begin(), part.events.end(), is_last);
  part.events.erase(end, part.events.end());
  return replay(part, options);
}

}  // namespace

DeviceRun run_on_device(const Trace& trace, const ReplayOptions& options, MeasuredDevice& device,
                        const DeviceRunOptions& run) {
  DeviceRun result;
  Stops stops(run);
  device::DeviceExecutor executor(trace, device,
                                  {.poison = run.poison,
                                   .seat = run.seat,
                                   .on_phase_end =
                                       [&](device::DeviceExecutor&, std::uint32_t phase) {
                                         if (run.on_phase_end) run.on_phase_end(phase);
                                       },
                                   .stop = [&] { return stops.now(); }});
  result.replay = replay(trace, options, &executor, &device.store());
  executor.finish();
  result.phase_ms = executor.phase_ms();
  result.losses = executor.losses();
  if (executor.failure()) result.replay = replay_of_part(trace, options, executor.failure()->run);
  if (stops.status() == RunStatus::ok) result.failure = executor.failure();
  if (!device.store_error().empty() && !result.failure) {
    result.failure = RunFailure{device.store_error(), 0, result.replay.oom_storage};
  }
  result.status = stops.status() != RunStatus::ok ? stops.status() : status_of(result);
  result.memory = device.memory(result.replay.allocator.reserved);
  device.release_segments();
  const DeviceMemory after = device.memory(0);
  result.memory.grown_bytes = after.grown_bytes;
  if (result.memory.unexplained_bytes && after.grown_bytes) {
    *result.memory.unexplained_bytes -= static_cast<std::int64_t>(*after.grown_bytes);
  }
  result.facts = device.facts();
  return result;
}

}  // namespace ledger
