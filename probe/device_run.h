// device_run.h - plays a trace on a device and measures.
#pragma once

#include "probe/measured_device.h"
#include "probe/measured_result.h"

namespace ledger {

struct DeviceRun : MeasuredResult {
  DeviceFacts facts;
  DeviceMemory memory;
};

struct DeviceRunOptions {
  bool poison = false;
  RankSeat seat = {};                                         // in whose place this process is
  double timeout_s = 0;                                       // 0: none
  std::function<bool()> interrupted = nullptr;                // asked between operators
  std::function<void(std::uint32_t)> on_phase_end = nullptr;  // index into Trace::phases
};

DeviceRun run_on_device(const Trace& trace, const ReplayOptions& options, MeasuredDevice& device,
                        const DeviceRunOptions& run);

}  // namespace ledger
