// device_run.h - plays a trace on a device and measures.
#pragma once

#include "probe/measured_device.h"
#include "probe/measured_result.h"
#include "probe/run_limits.h"

namespace ledger {

struct DeviceRun : MeasuredResult {
  DeviceFacts facts;
  DeviceMemory memory;
};

struct DeviceRunOptions {
  bool poison = false;
  RankSeat seat = {};                          // in whose place this process is
  Communicator* ranks = nullptr;               // of which this is one
  StageTurns messages = {};                    // as DeviceExecutor::Options has them
  std::function<NcclMemory()> nccl = nullptr;  // what they took of the device
  std::uint64_t nccl_version = 0;
  RunLimits limits = {};                                      // without `hung`
  std::function<void(const DeviceRun&)> hung = nullptr;       // as RunLimits has it
  std::function<void(std::uint32_t)> on_phase_end = nullptr;  // index into Trace::phases
};

DeviceRun run_on_device(const Trace& trace, const ReplayOptions& options, MeasuredDevice& device,
                        const DeviceRunOptions& run);

}  // namespace ledger
