// run_host.h - plays a trace on this machine's memory and processor: the reference that needs no GPU.
#pragma once

#include <string>
#include <vector>

#include "core/memory/replay.h"
#include "probe/host/host_executor.h"
#include "probe/measured_result.h"
#include "probe/run_limits.h"

namespace ledger {

struct HostRunOptions {
  HostExecutor::Options executor;
  Bytes memory_limit = kOverflow;  // of this process's memory; the card's is in ReplayOptions
  bool keep_gradients = false;
  bool keep_weights = false;
  RunLimits limits = {};
};

struct NamedTensor {
  std::string name;  // of the parameter
  std::vector<double> values;
  std::uint64_t first = 0;  // where this rank has a shard: of the whole, or of its part as `cut` says
  TensorCut cut = {};
};

struct HostRun : MeasuredResult {
  // Of the last backward phase at whose end the parameter's latest gradient was alive.
  std::vector<NamedTensor> gradients;
  std::vector<NamedTensor> weights;  // after the last step: what this rank holds of each
};

// The first operator of `trace` that the host has no kernel for, by its ATen name; empty when it can all be computed.
std::string first_not_computed(const Trace& trace);

HostRun run_on_host(const Trace& trace, const ReplayOptions& options, const HostRunOptions& host = {});

}  // namespace ledger
