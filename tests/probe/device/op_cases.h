// op_cases.h - single operators with random operands, for comparing a device's kernels with the host's.
//
// Used by the tests on the emulated device and by probe_gpu_check on a GPU, hence no test framework here.
#pragma once

#include <random>
#include <string>

#include "probe/host/host_executor.h"
#include "probe/ranks/shard_moves.h"
#include "probe/ranks/stand_in.h"
#include "tests/probe/test_tensor.h"

namespace ledger::op_cases {

using one_op::Sizes;
using one_op::TestTensor;

// Every case runs as the second of three ranks, in whose place one process is.
inline constexpr RankSeat kSeat{1, 3};

struct OpCase {
  std::string name;
  OpKind op;
  std::vector<TestTensor> in, out;  // outputs that are updated in place come with their values
  Attr attr;
  Trace trace;               // what kernels look up besides their operands
  double tolerance = 0;      // of the normalised mean square error; 0: that of the outputs' dtype
  std::size_t compared = 0;  // outputs that are compared; 0: all
};

// A trace of this one operator; storages and views are the inputs', then the outputs'.
inline Trace trace_of(const OpCase& c) {
  Trace trace = c.trace;
  trace.has_operands = true;
  trace.names = {""};
  for (const TestTensor& t : c.in)
    one_op::add_tensor(trace, t);
  for (const TestTensor& t : c.out)
    one_op::add_tensor(trace, t);
  Run run;
  run.op = c.op;
  run.inputs = static_cast<std::uint8_t>(c.in.size());
  run.outputs = static_cast<std::uint8_t>(c.out.size());
  run.attr = c.attr;
  trace.runs.push_back(run);
  return trace;
}

struct OpResult {
  std::vector<TestTensor> out;
  std::string failure;
};

// Runs it on an executor whose memory is `store`'s.
template <class Executor>
OpResult run_case(const OpCase& c, const Trace& trace, Executor& executor, SegmentStore& store) {
  constexpr Bytes kSegment = 2 * kMiB;
  const auto storages = static_cast<StorageId>(trace.storages.size());
  std::vector<std::pair<std::uint64_t, Bytes>> segments;
  std::uint64_t address = std::uint64_t{1} << 40;
  for (StorageId id = 0; id < storages; ++id) {
    const Bytes bytes = round_up(trace.storages[id].bytes + 1, kSegment);
    if (!store.reserve(address, bytes)) return {{}, "no memory"};
    segments.emplace_back(address, bytes);
    executor.born(id, address);
    executor.write(id, id < c.in.size() ? c.in[id].memory : c.out[id - c.in.size()].memory);
    address += bytes;
  }
  executor.run(0);
  OpResult result{c.out, ""};
  for (std::size_t i = 0; i < c.out.size(); ++i)
    result.out[i].memory = executor.read(static_cast<StorageId>(c.in.size() + i));
  for (StorageId id = 0; id < storages; ++id)
    executor.died(id);
  if (executor.failure()) result.failure = executor.failure()->what;
  for (const auto& [at, bytes] : segments)
    store.release(at, bytes);
  return result;
}

inline OpResult on_host(const OpCase& c) {
  const Trace trace = trace_of(c);
  HostStore store;
  StandIn ranks(kSeat.rank, kSeat.world);
  HostExecutor::Options options;
  options.poison = true;
  options.ranks = &ranks;
  HostExecutor executor(trace, store, options);
  return run_case(c, trace, executor, store);
}

// Sum of squared differences over sum of squares; infinite where one is NaN or infinite and the other is not the same.
inline double normalised_error(const TestTensor& got, const TestTensor& want) {
  double error = 0, size = 0;
  for (std::uint64_t i = 0; i < want.numel(); ++i) {
    const double a = got[i], b = want[i];
    if (std::isfinite(a) && std::isfinite(b)) {
      error += (a - b) * (a - b);
      size += b * b;
    } else if (!(a == b || (std::isnan(a) && std::isnan(b)))) {
      return std::numeric_limits<double>::infinity();
    }
  }
  return error == 0 ? 0 : error / std::max(size, 1e-30);
}

// Measured on bf16-stored results of fp32 arithmetic: one rounding makes 2.7e-6; reordered fp32 sums flip few of them.
inline double tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 1e-24;
    case DType::f32:
      return 1e-10;
    case DType::bf16:
      return 2e-5;
    case DType::f16:
      return 1e-6;
    default:
      return 0;
  }
}

// What is wrong with a device's result; empty when it agrees with the host's.
inline std::string disagreement(const OpCase& c, const OpResult& got, const OpResult& want) {
  if (!want.failure.empty()) return "the host: " + want.failure;
  if (!got.failure.empty()) return got.failure;
  const std::size_t compared = c.compared == 0 ? c.out.size() : c.compared;
  for (std::size_t i = 0; i < compared; ++i) {
    const double error = normalised_error(got.out[i], want.out[i]);
    const double allowed =
        c.tolerance != 0 && info(c.out[i].dtype).floating ? c.tolerance : tolerance_of(c.out[i].dtype);
    if (error > allowed) {
      return "output " + std::to_string(i) + ": normalised error " + std::to_string(error * 1e9) + "e-9, allowed " +
             std::to_string(allowed * 1e9) + "e-9";
    }
  }
  return "";
}

// All cases; another seed makes other shapes and values.
std::vector<OpCase> all_cases(std::uint32_t seed);

}  // namespace ledger::op_cases
