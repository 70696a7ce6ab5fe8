// slope.h - the loss's slope along one direction of all parameters: as the gradients state it, and as it is measured.
#pragma once

#include <gtest/gtest.h>

#include "core/memory/replay.h"
#include "probe/host/run_host.h"
#include "probe/initial_values.h"

namespace ledger {

inline double direction(std::size_t parameter, std::size_t i) {
  return centred_value(splitmix64(parameter) + i, 1);
}

// Moves each trainable parameter along its direction once it is loaded.
class Nudged : public HostExecutor {
 public:
  Nudged(const Trace& trace, HostStore& store, double step) : HostExecutor(trace, store), trace_(trace), step_(step) {}

  void run(std::uint32_t index) override {
    HostExecutor::run(index);
    if (trace_.runs[index].op != OpKind::load_parameter) return;
    const auto number = static_cast<std::size_t>(trace_.runs[index].attr.i[0]);
    const Parameter& parameter = trace_.parameters[number];
    if (!parameter.trainable) return;
    std::vector<double> values = read(parameter.storage);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] += step_ * direction(number, i);
    write(parameter.storage, values);
  }

 private:
  const Trace& trace_;
  double step_;
};

inline double loss_at(const Trace& trace, double step) {
  HostStore store;
  Nudged executor(trace, store, step);
  replay(trace, {}, &executor, &store);
  if (executor.failure()) ADD_FAILURE() << executor.failure()->what;
  return executor.losses()[0];
}

inline double stated_slope(const Trace& traced, const std::vector<NamedTensor>& gradients) {
  double slope = 0;
  for (std::size_t number = 0; number < traced.parameters.size(); ++number) {
    for (const NamedTensor& gradient : gradients) {
      if (gradient.name != traced.parameters[number].name) continue;
      for (std::size_t i = 0; i < gradient.values.size(); ++i)
        slope += gradient.values[i] * direction(number, i);
    }
  }
  return slope;
}

inline double measured_slope(const Trace& traced, double step) {
  return (loss_at(traced, step) - loss_at(traced, -step)) / (2 * step);
}

}  // namespace ledger
