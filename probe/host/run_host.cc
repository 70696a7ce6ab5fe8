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
    if (place == kept.end()) place = kept.insert(place, {parameter.name, {}, 0, {}});
    place->values = executor.read(parameter.gradient);
  }
}

std::vector<NamedTensor> weights_of(const Trace& trace, const HostExecutor& executor) {
  std::vector<NamedTensor> all;
  for (const Parameter& parameter : trace.parameters) {
    if (!executor.alive(parameter.storage)) continue;
    std::vector<double> values = executor.read(parameter.storage);
    if (parameter.elements != 0) {
      const auto begin = values.begin() + static_cast<std::ptrdiff_t>(parameter.offset);
      values = std::vector<double>(begin, begin + static_cast<std::ptrdiff_t>(parameter.held));
    }
    all.push_back({parameter.name, std::move(values), parameter.first, parameter.cut});
  }
  return all;
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
  Stops stops(host.limits, trace, options);
  HostExecutor::Options executor_options = host.executor;
  executor_options.stop = [&stops] { return stops.now(); };
  executor_options.on_phase_end = [&](const HostExecutor& executor, std::uint32_t phase) {
    const bool backward = trace.phases[phase].ends_with("backward");
    if (host.keep_gradients && backward) keep_gradients(trace, executor, result.gradients);
    if (host.keep_weights && phase + 1 == trace.phases.size()) result.weights = weights_of(trace, executor);
    if (host.executor.on_phase_end) host.executor.on_phase_end(executor, phase);
    stops.phase_ended(executor, phase);
  };
  HostStore store(host.memory_limit);
  HostExecutor executor(trace, store, std::move(executor_options));
  result.replay = replay(trace, options, &executor, &store);
  executor.finish();
  stops.conclude(executor, result);
  return result;
}

}  // namespace ledger
