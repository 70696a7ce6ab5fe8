#include "probe/device_run.h"

#include <mutex>

namespace ledger {

namespace {

// What is known of the memory while segments are held: their sum is the allocator's to know.
DeviceMemory without_sums(DeviceMemory memory) {
  memory.grown_bytes.reset();
  memory.unexplained_bytes.reset();
  return memory;
}

DeviceFacts facts_of(const MeasuredDevice& device, const DeviceRunOptions& run) {
  DeviceFacts facts = device.facts();
  facts.nccl = run.nccl_version;
  return facts;
}

DeviceMemory memory_of(MeasuredDevice& device, const DeviceRunOptions& run, Bytes reserved) {
  if (!run.nccl) return device.memory(reserved, 0);
  const NcclMemory nccl = run.nccl();
  DeviceMemory memory = device.memory(reserved, nccl.total());
  memory.nccl = nccl;
  return memory;
}

}  // namespace

DeviceRun run_on_device(const Trace& trace, const ReplayOptions& options, MeasuredDevice& device,
                        const DeviceRunOptions& run) {
  DeviceRun result;
  std::mutex mutex;
  DeviceMemory at_phase_end = without_sums(memory_of(device, run, 0));
  RunLimits limits = run.limits;
  if (run.hung) {
    limits.hung = [&](const MeasuredResult& measured) {
      DeviceRun part;
      static_cast<MeasuredResult&>(part) = measured;
      part.facts = facts_of(device, run);
      const std::scoped_lock lock(mutex);
      part.memory = at_phase_end;
      run.hung(part);
    };
  }
  Stops stops(limits, trace, options);
  const auto phase_ended = [&](const device::DeviceExecutor& executor, std::uint32_t phase) {
    stops.phase_ended(executor, phase);
    if (run.on_phase_end) run.on_phase_end(phase);
    if (!run.hung) return;
    const DeviceMemory now = without_sums(memory_of(device, run, 0));
    const std::scoped_lock lock(mutex);
    at_phase_end = now;
  };
  device::DeviceExecutor executor(trace, device,
                                  {.poison = run.poison,
                                   .seat = run.seat,
                                   .ranks = run.ranks,
                                   .messages = run.messages,
                                   .on_phase_end = phase_ended,
                                   .stop = [&] { return stops.now(); }});
  result.replay = replay(trace, options, &executor, &device.store());
  executor.finish();
  const Bytes held = result.replay.allocator.reserved;  // also by what was placed after a stop and never ran
  stops.conclude(executor, result);
  if (result.failure && result.failure->shortage && !result.failure->shortage->device_bytes_in_use)
    result.failure->shortage->device_bytes_in_use = device.bytes_in_use();
  if (!device.store_error().empty() && !result.failure) {
    result.failure = RunFailure{device.store_error(), 0, result.replay.oom_storage};
    if (result.status == RunStatus::ok || result.status == RunStatus::out_of_memory) result.status = RunStatus::error;
  }
  result.memory = memory_of(device, run, held);
  device.release_segments();
  const DeviceMemory after = memory_of(device, run, 0);
  result.memory.grown_bytes = after.grown_bytes;
  if (result.memory.unexplained_bytes && after.grown_bytes) {
    *result.memory.unexplained_bytes -= static_cast<std::int64_t>(*after.grown_bytes);
  }
  result.facts = facts_of(device, run);
  return result;
}

}  // namespace ledger
