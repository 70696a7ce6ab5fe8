#include "probe/measured_result.h"

#include <algorithm>
#include <iterator>

namespace ledger {

const char* run_status_name(RunStatus status) {
  constexpr const char* kNames[] = {"ok", "oom", "timeout", "interrupted", "error"};
  return kNames[static_cast<std::size_t>(status)];
}

std::vector<double> known_losses(const Trace& trace, const MeasuredResult& result) {
  const auto done = trace.phases.begin() + std::min<std::ptrdiff_t>(result.phases_done, std::ssize(trace.phases));
  const auto is_forward = [](const std::string& phase) { return phase.ends_with("forward"); };
  const auto count = std::count_if(trace.phases.begin(), done, is_forward);
  return {result.losses.begin(), result.losses.begin() + std::min(count, std::ssize(result.losses))};
}

RunStatus status_of(const MeasuredResult& result) {
  if (result.failure) return result.failure->shortage ? RunStatus::out_of_memory : RunStatus::error;
  return result.replay.out_of_memory ? RunStatus::out_of_memory : RunStatus::ok;
}

}  // namespace ledger
