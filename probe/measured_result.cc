#include "probe/measured_result.h"

namespace ledger {

const char* run_status_name(RunStatus status) {
  constexpr const char* kNames[] = {"ok", "oom", "timeout", "interrupted", "error"};
  return kNames[static_cast<std::size_t>(status)];
}

RunStatus status_of(const MeasuredResult& result) {
  if (result.failure) return RunStatus::error;
  return result.replay.out_of_memory ? RunStatus::out_of_memory : RunStatus::ok;
}

}  // namespace ledger
