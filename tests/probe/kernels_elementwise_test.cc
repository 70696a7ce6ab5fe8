// Element-wise kernels against one-line references, in every dtype, over contiguous, reversed, sliced and broadcast
// operands.
#include <algorithm>

#include "one_op.h"

namespace ledger::one_op {
namespace {

struct Elementwise {
  OpKind op;
  std::size_t inputs;
  double (*reference)(double a, double b, double x);
  double low = -2, high = 2;
};

constexpr double kScalar = 1.75;

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

const Elementwise kCases[] = {
    {OpKind::to_copy, 1, [](double a, double, double) { return a; }},
    {OpKind::clone, 1, [](double a, double, double) { return a; }},
    {OpKind::copy_into, 1, [](double a, double, double) { return a; }},
    {OpKind::add, 2, [](double a, double b, double) { return a + b; }},
    {OpKind::add_scalar, 1, [](double a, double, double x) { return a + x; }},
    {OpKind::mul, 2, [](double a, double b, double) { return a * b; }},
    {OpKind::mul_scalar, 1, [](double a, double, double x) { return a * x; }},
    {OpKind::div_scalar, 1, [](double a, double, double x) { return a / x; }},
    {OpKind::sub, 2, [](double a, double b, double) { return a - b; }},
    {OpKind::div, 2, [](double a, double b, double) { return a / b; }, 0.25, 3},
    {OpKind::sqrt, 1, [](double a, double, double) { return std::sqrt(a); }, 0.25, 3},
    {OpKind::foreach_sqrt, 1, [](double a, double, double) { return std::sqrt(a); }, 0.25, 3},
    {OpKind::neg, 1, [](double a, double, double) { return -a; }},
    {OpKind::pow_scalar, 1, [](double a, double, double x) { return std::pow(a, x); }, 0.25, 3},
    {OpKind::rsqrt, 1, [](double a, double, double) { return 1 / std::sqrt(a); }, 0.25, 3},
    {OpKind::reciprocal, 1, [](double a, double, double) { return 1 / a; }, 0.25, 3},
    {OpKind::clamp_max, 1, [](double a, double, double x) { return std::min(a, x); }, 1, 2.5},
    {OpKind::cos, 1, [](double a, double, double) { return std::cos(a); }, -1, 1},
    {OpKind::sin, 1, [](double a, double, double) { return std::sin(a); }, -3, 3},
    {OpKind::silu, 1, [](double a, double, double) { return a * sigmoid(a); }},
    {OpKind::silu_backward, 2,
     [](double g, double x, double) { return g * (sigmoid(x) + x * sigmoid(x) * (1 - sigmoid(x))); }},
    {OpKind::gelu, 1, [](double a, double, double) { return a * std::erfc(-a / std::sqrt(2.0)) / 2; }},
    {OpKind::gelu_backward, 2,
     [](double g, double x, double) {
       return g * (std::erfc(-x / std::sqrt(2.0)) / 2 + x * std::exp(-x * x / 2) / std::sqrt(2 * std::acos(-1.0)));
     }},
    {OpKind::relu, 1, [](double a, double, double) { return std::max(a, 0.0); }},
    {OpKind::threshold_backward, 2, [](double g, double y, double) { return y > 0 ? g : 0; }},
    {OpKind::tanh, 1, [](double a, double, double) { return std::tanh(a); }},
    {OpKind::tanh_backward, 2, [](double g, double y, double) { return g * (1 - y * y); }, 0.1, 0.9},
};

class ElementwiseKernels : public testing::TestWithParam<std::tuple<Elementwise, DType>> {};

INSTANTIATE_TEST_SUITE_P(All, ElementwiseKernels,
                         testing::Combine(testing::ValuesIn(kCases),
                                          testing::Values(DType::f64, DType::f32, DType::bf16, DType::f16)),
                         [](const auto& test) {
                           std::string name = std::string(op_name(std::get<0>(test.param).op)) + "_";
                           std::replace(name.begin(), name.end(), '.', '_');
                           return name + ledger::info(std::get<1>(test.param)).name;
                         });

std::vector<TestTensor> layouts(DType dtype, const Elementwise& c) {
  const Sizes sizes = {3, 5, 7};
  std::vector<TestTensor> all = {
      random(dtype, sizes, c.low, c.high),       random_reversed(dtype, sizes, c.low, c.high),
      random_slice(dtype, sizes, c.low, c.high), random(dtype, {5, 1}, c.low, c.high),
      random(dtype, {3, 1, 7}, c.low, c.high),   random(dtype, {}, c.low, c.high)};
  TestTensor expanded = random(dtype, {3, 1, 7}, c.low, c.high);
  expanded.sizes[1] = 5;
  expanded.strides[1] = 0;
  all.push_back(expanded);
  return all;
}

double broadcast_at(const TestTensor& t, std::uint64_t index, const Sizes& sizes) {
  std::int64_t at = static_cast<std::int64_t>(t.offset);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::size_t dim = sizes.size() - 1 - i;
    const std::uint64_t here = index % sizes[dim];
    index /= sizes[dim];
    if (i >= t.sizes.size()) continue;
    const std::size_t own = t.sizes.size() - 1 - i;
    if (t.sizes[own] != 1) at += static_cast<std::int64_t>(here) * t.strides[own];
  }
  return t.memory[static_cast<std::size_t>(at)];
}

TEST_P(ElementwiseKernels, MatchTheirDefinitionOnAnyStrides) {
  const auto& [c, dtype] = GetParam();
  const Sizes sizes = {3, 5, 7};
  const Attr attr{kScalar, {}};
  for (const TestTensor& a : layouts(dtype, c)) {
    for (const TestTensor& b : layouts(dtype, c)) {
      std::vector<TestTensor> in = {a};
      if (c.inputs == 2) in.push_back(b);
      for (const TestTensor& out : {empty(dtype, sizes), transpose(empty(dtype, {3, 7, 5}), 1, 2)}) {
        const TestTensor got = run_op(c.op, in, {out}, attr)[0];
        std::vector<double> want(got.numel());
        for (std::uint64_t i = 0; i < want.size(); ++i) {
          want[i] = c.reference(broadcast_at(a, i, sizes), broadcast_at(b, i, sizes), kScalar);
        }
        expect_near(got, want, 4 * epsilon(dtype), dtype == DType::f64 ? 1e-15 : 1e-7);
        if (testing::Test::HasFatalFailure()) return;
      }
      if (c.inputs == 1) break;
    }
  }
}

TEST(ElementwiseKernels, LongTensorsAreCutIntoStripsWithoutSeams) {
  const TestTensor a = random(DType::f32, {1, 1537}), b = random(DType::f32, {4, 1537});
  const TestTensor sum = run_op(OpKind::add, {a, b}, {empty(DType::f32, {4, 1537})})[0];
  for (std::uint64_t i = 0; i < sum.numel(); ++i)
    ASSERT_EQ(sum[i], rounded_to(DType::f32, a[i % 1537] + b[i]));
}

TEST(ElementwiseKernels, MixedDtypesComputeInFloatAndRoundOnce) {
  const TestTensor a = random(DType::bf16, {64}), b = random(DType::f32, {64});
  const TestTensor wide = run_op(OpKind::mul, {a, b}, {empty(DType::f32, {64})})[0];
  const TestTensor narrow = run_op(OpKind::mul, {a, b}, {empty(DType::bf16, {64})})[0];
  for (std::uint64_t i = 0; i < 64; ++i) {
    EXPECT_EQ(wide[i], rounded_to(DType::f32, a[i] * b[i]));
    EXPECT_EQ(narrow[i], rounded_to(DType::bf16, wide[i]));
  }
}

TEST(ElementwiseKernels, InPlaceOperatorsReadBeforeTheyWrite) {
  const TestTensor out = random(DType::f32, {5, 600}), factor = random(DType::f32, {});
  Trace trace;  // one storage as both in0 and out0
  trace.has_operands = true;
  trace.names = {""};
  add_tensor(trace, out);
  add_tensor(trace, factor);
  trace.views.push_back(trace.views[0]);
  trace.runs.push_back({.op = OpKind::mul_inplace, .inputs = 2, .outputs = 1, .attr = {}});
  HostStore store;
  ASSERT_TRUE(store.reserve(kMiB, kMiB));
  HostExecutor executor(trace, store);
  executor.born(0, kMiB);
  executor.born(1, kMiB + 512 * kKiB);
  executor.write(0, out.memory);
  executor.write(1, factor.memory);
  executor.run(0);
  ASSERT_FALSE(executor.failure()) << executor.failure()->what;
  const std::vector<double> got = executor.read(0);
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_EQ(got[i], rounded_to(DType::f32, out[i] * factor[0]));
}

TEST(ElementwiseKernels, ShapesThatDoNotBroadcastAreAFailure) {
  const Outcome outcome =
      try_op(OpKind::add, {random(DType::f32, {3}), random(DType::f32, {4})}, {empty(DType::f32, {4})});
  ASSERT_TRUE(outcome.failure);
  EXPECT_NE(outcome.failure->what.find("broadcast"), std::string::npos) << outcome.failure->what;
}

TEST(ElementwiseKernels, SiluBackwardIsTheDerivativeOfSilu) {
  const TestTensor x = random(DType::f64, {4, 9}, -4, 4), u = random(DType::f64, {4, 9});
  const TestTensor gradient = run_op(OpKind::silu_backward, {u, x}, {empty(DType::f64, {4, 9})})[0];
  expect_gradient([](const TestTensor& at) { return run_op(OpKind::silu, {at}, {empty(DType::f64, at.sizes)})[0]; }, x,
                  u, gradient);
}

}  // namespace
}  // namespace ledger::one_op
