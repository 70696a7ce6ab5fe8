// one_op.h - runs a single operator on the host executor: tensors of any strides in, tensors out.
//
// Every run is a hand-made trace in poison mode, so out-of-bounds reads are NaN and writes past the end are failures.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <random>
#include <vector>

#include "core/base/number_format.h"
#include "probe/host/host_executor.h"

namespace ledger::one_op {

using Sizes = std::vector<std::uint64_t>;

inline double rounded_to(DType dtype, double value) {
  switch (dtype) {
    case DType::f64:
      return value;
    case DType::f32:
      return static_cast<double>(static_cast<float>(value));
    case DType::bf16:
      return static_cast<double>(float_from_bf16(bf16_from_float(static_cast<float>(value))));
    case DType::f16:
      return static_cast<double>(float_from_fp16(fp16_from_float(static_cast<float>(value))));
    default:
      return std::trunc(value);
  }
}

// Distance between neighbouring values near 1.
inline double epsilon(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 0x1p-52;
    case DType::f32:
      return 0x1p-23;
    case DType::bf16:
      return 0x1p-7;
    default:
      return 0x1p-10;
  }
}

// A strided window on `memory`, as View is on a storage.
struct TestTensor {
  DType dtype = DType::f64;
  Sizes sizes;
  std::vector<std::int64_t> strides;
  std::uint64_t offset = 0;
  std::vector<double> memory;

  std::uint64_t numel() const {
    std::uint64_t n = 1;
    for (const std::uint64_t size : sizes)
      n *= size;
    return n;
  }
  std::size_t place(std::uint64_t index) const {  // of the index-th element in row-major order
    std::int64_t at = static_cast<std::int64_t>(offset);
    for (std::size_t i = sizes.size(); i-- > 0;) {
      at += static_cast<std::int64_t>(index % sizes[i]) * strides[i];
      index /= sizes[i];
    }
    return static_cast<std::size_t>(at);
  }
  double operator[](std::uint64_t index) const { return memory[place(index)]; }
  std::vector<double> values() const {
    std::vector<double> result(numel());
    for (std::uint64_t i = 0; i < result.size(); ++i)
      result[i] = (*this)[i];
    return result;
  }
};

inline TestTensor dense(DType dtype, const Sizes& sizes, std::vector<double> values) {
  TestTensor t{dtype, sizes, std::vector<std::int64_t>(sizes.size()), 0, std::move(values)};
  std::int64_t stride = 1;
  for (std::size_t i = sizes.size(); i-- > 0;) {
    t.strides[i] = stride;
    stride *= static_cast<std::int64_t>(sizes[i]);
  }
  for (double& value : t.memory)
    value = rounded_to(dtype, value);
  return t;
}

inline TestTensor filled(DType dtype, const Sizes& sizes, double value) {
  TestTensor t = dense(dtype, sizes, {});
  t.memory.assign(t.numel(), value);
  return t;
}

// An output: NaN until it is written.
inline TestTensor empty(DType dtype, const Sizes& sizes) {
  return filled(dtype, sizes, info(dtype).floating ? std::numeric_limits<double>::quiet_NaN() : -1);
}

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

inline TestTensor transpose(TestTensor t, std::size_t a, std::size_t b) {
  std::swap(t.sizes[a], t.sizes[b]);
  std::swap(t.strides[a], t.strides[b]);
  return t;
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
  std::optional<HostFailure> failure;
};

namespace detail {

inline void add_tensor(Trace& trace, const TestTensor& t) {
  const auto id = static_cast<StorageId>(trace.storages.size());
  StorageInfo storage;
  storage.bytes = t.memory.size() * element_bytes(t.dtype);
  storage.dtype = t.dtype;
  trace.storages.push_back(storage);
  View view;
  view.storage = id;
  view.dtype = t.dtype;
  view.rank = static_cast<std::uint8_t>(t.sizes.size());
  std::copy(t.sizes.begin(), t.sizes.end(), view.sizes.begin());
  std::copy(t.strides.begin(), t.strides.end(), view.strides.begin());
  view.offset = t.offset;
  trace.views.push_back(view);
}

}  // namespace detail

// `trace` brings what kernels look up besides their operands (parameters, AdamW, ...).
inline Outcome try_op(OpKind op, const std::vector<TestTensor>& in, std::vector<TestTensor> out, Attr attr = {},
                      Trace trace = {}) {
  trace.has_operands = true;
  trace.names = {""};
  for (const auto* group : {&in, static_cast<const std::vector<TestTensor>*>(&out)}) {
    for (const TestTensor& t : *group)
      detail::add_tensor(trace, t);
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
