// one_op.h - runs a single operator on the host executor: tensors of any strides in, tensors out.
//
// Every run is a hand-made trace in poison mode, so out-of-bounds reads are NaN and writes past the end are failures.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <random>

#include "probe/host/host_executor.h"
#include "test_tensor.h"

namespace ledger::one_op {

// Starts anew in every test, so that no test depends on which ones ran before it.
inline std::mt19937& generator() {
  constexpr std::mt19937::result_type kSeed = 20240229;
  static std::mt19937 engine(kSeed);
  static const testing::TestInfo* drawing = nullptr;
  const testing::TestInfo* current = testing::UnitTest::GetInstance()->current_test_info();
  if (current != drawing) engine.seed(kSeed);
  drawing = current;
  return engine;
}

inline TestTensor random(DType dtype, const Sizes& sizes, double low = -1, double high = 1) {
  std::uniform_real_distribution<double> uniform(low, high);
  TestTensor t = dense(dtype, sizes, {});
  t.memory.resize(t.numel());
  for (double& value : t.memory)
    value = rounded_to(dtype, uniform(generator()));
  return t;
}

inline TestTensor random_ids(const Sizes& sizes, std::uint64_t below) {
  return random(DType::i64, sizes, 0, static_cast<double>(below) - 1e-9);
}

// Of the same sizes, but with its dimensions in reverse order in memory.
inline TestTensor random_reversed(DType dtype, Sizes sizes, double low = -1, double high = 1) {
  const Sizes reversed(sizes.rbegin(), sizes.rend());
  TestTensor t = random(dtype, reversed, low, high);
  std::reverse(t.sizes.begin(), t.sizes.end());
  std::reverse(t.strides.begin(), t.strides.end());
  return t;
}

// Of the same sizes, cut out of a tensor that is larger in every dimension.
inline TestTensor random_slice(DType dtype, const Sizes& sizes, double low = -1, double high = 1) {
  Sizes larger = sizes;
  for (std::uint64_t& size : larger)
    size += 3;
  TestTensor t = random(dtype, larger, low, high);
  t.sizes = sizes;
  for (const std::int64_t stride : t.strides)
    t.offset += static_cast<std::uint64_t>(stride);
  return t;
}

struct Outcome {
  std::vector<TestTensor> out;
  std::optional<RunFailure> failure;
};

// `trace` brings what kernels look up besides their operands (parameters, AdamW, ...).
inline Outcome try_op(OpKind op, const std::vector<TestTensor>& in, std::vector<TestTensor> out, Attr attr = {},
                      Trace trace = {}) {
  trace.has_operands = true;
  trace.names = {""};
  for (const auto* group : {&in, static_cast<const std::vector<TestTensor>*>(&out)}) {
    for (const TestTensor& t : *group)
      add_tensor(trace, t);
  }
  Run run;
  run.op = op;
  run.inputs = static_cast<std::uint8_t>(in.size());
  run.outputs = static_cast<std::uint8_t>(out.size());
  run.attr = attr;
  trace.runs.push_back(run);

  HostStore store;
  HostExecutor executor(trace, store, {.poison = true});
  std::uint64_t address = std::uint64_t{1} << 40;
  for (StorageId id = 0; id < trace.storages.size(); ++id) {
    const Bytes bytes = round_up(trace.storages[id].bytes + 1, 4096);
    EXPECT_TRUE(store.reserve(address, bytes));
    executor.born(id, address);
    executor.write(id, id < in.size() ? in[id].memory : out[id - in.size()].memory);
    address += bytes;
  }
  executor.run(0);
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i].memory = executor.read(static_cast<StorageId>(in.size() + i));
  for (StorageId id = 0; id < trace.storages.size(); ++id)
    executor.died(id);
  return {std::move(out), executor.failure()};
}

inline std::vector<TestTensor> run_op(OpKind op, const std::vector<TestTensor>& in, std::vector<TestTensor> out,
                                      Attr attr = {}, Trace trace = {}) {
  Outcome outcome = try_op(op, in, std::move(out), attr, std::move(trace));
  if (outcome.failure) ADD_FAILURE() << outcome.failure->what;
  return std::move(outcome.out);
}

inline void expect_near(const TestTensor& got, const std::vector<double>& want, double relative, double absolute = 0) {
  ASSERT_EQ(got.numel(), want.size());
  for (std::uint64_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], relative * std::fabs(want[i]) + absolute) << "element " << i;
  }
}

inline double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double total = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    total += a[i] * b[i];
  return total;
}

inline TestTensor moved(TestTensor t, const TestTensor& direction, double step) {
  for (std::uint64_t i = 0; i < t.numel(); ++i)
    t.memory[t.place(i)] += step * direction[i];
  return t;
}

// Is `gradient` that of sum(u * f(x)) at x? Compared along one random direction by central differences, in fp64: a
// right gradient differs by some 1e-9, one with an error of 0.1 % in one term by 1e-4.
template <class F>
void expect_gradient(F f, const TestTensor& x, const TestTensor& u, const TestTensor& gradient,
                     double tolerance = 1e-7) {
  const TestTensor v = random(DType::f64, x.sizes);
  constexpr double kStep = 1e-5;
  const TestTensor above = f(moved(x, v, kStep)), below = f(moved(x, v, -kStep));
  const double measured = (dot(u.values(), above.values()) - dot(u.values(), below.values())) / (2 * kStep);
  const double stated = dot(gradient.values(), v.values());
  EXPECT_NEAR(stated, measured, tolerance * (std::fabs(measured) + 1e-3));
}

}  // namespace ledger::one_op
