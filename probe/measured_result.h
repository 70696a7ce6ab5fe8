// measured_result.h - a run of a trace on any executor, as files and tables tell it.
#pragma once

#include <optional>
#include <vector>

#include "core/memory/replay.h"
#include "probe/checked_executor.h"

namespace ledger {

enum class RunStatus : std::uint8_t { ok, out_of_memory, timeout, interrupted, error };
const char* run_status_name(RunStatus status);

struct MeasuredResult {
  Replay replay;
  std::vector<double> phase_ms;       // by index into Trace::phases
  std::vector<double> losses;         // one a step, NaN where none was computed
  std::uint32_t phases_done = 0;      // how many phases ran to their end
  const char* stopped_by = "";        // with RunStatus::timeout: the flag
  std::optional<RunFailure> failure;  // of the trace, a kernel or the device; being out of memory is a result (Replay)
  RunStatus status = RunStatus::ok;
};

// Of the forward passes that ran to their end.
std::vector<double> known_losses(const Trace& trace, const MeasuredResult& result);

// What replay and failure say, where nothing ended the run before its time.
RunStatus status_of(const MeasuredResult& result);

}  // namespace ledger
