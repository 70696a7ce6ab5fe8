#include "probe/host/run_host.h"

#include <algorithm>
#include <utility>

#include "probe/host/kernels.h"

namespace ledger {
namespace {

void keep_gradients(const Trace& trace, const HostExecutor& executor, std::vector<NamedTensor>& kept) {
  for (const Parameter& parameter : trace.parameters) {
    if (!executor.alive(parameter.gradient)) continue;
    const auto same_name = [&](const NamedTensor& t) { return t.name == parameter.name; };
    auto place = std::find_if(kept.begin(), kept.end(), same_name);
    if (place == kept.end()) place = kept.insert(place, {parameter.name, {}});
    place->values = executor.read(parameter.gradient);
  }
}

}  // namespace

std::string first_not_computed(const Trace& trace) {
  for (const Run& run : trace.runs) {
    if (!host::computes(run.op)) return op_name(run.op);
  }
  return "";
}

HostRun run_on_host(const Trace& trace, const ReplayOptions& options, const HostRunOptions& host) {
  HostRun result;
  HostExecutor::Options executor_options = host.executor;
  if (host.keep_gradients) {
    executor_options.on_phase_end = [&](const HostExecutor& executor, std::uint32_t phase) {
      if (trace.phases[phase].ends_with("backward")) keep_gradients(trace, executor, result.gradients);
      if (host.executor.on_phase_end) host.executor.on_phase_end(executor, phase);
    };
  }
  HostStore store(host.memory_limit);
  HostExecutor executor(trace, store, std::move(executor_options));
  result.replay = replay(trace, options, &executor, &store);
  executor.finish();
  result.phase_ms = executor.phase_ms();
  result.losses = executor.losses();
  result.failure = executor.failure();
  result.status = status_of(result);
  return result;
}

}  // namespace ledger
