// Layer norm and RMS norm: definition, statistics and gradients, with and without weight and bias.
#include "one_op.h"

namespace ledger::one_op {
namespace {

constexpr double kEps = 1e-3;

struct Normed {
  std::vector<double> y, mean, rstd;
};

Normed reference(const TestTensor& x, const std::vector<double>& weight, const std::vector<double>& bias) {
  const std::uint64_t width = x.sizes.back();
  Normed n{x.values(), {}, {}};
  for (std::uint64_t row = 0; row < n.y.size(); row += width) {
    double sum = 0, squares = 0;
    for (std::uint64_t i = 0; i < width; ++i)
      sum += n.y[row + i];
    const double mean = sum / static_cast<double>(width);
    for (std::uint64_t i = 0; i < width; ++i)
      squares += (n.y[row + i] - mean) * (n.y[row + i] - mean);
    const double rstd = 1 / std::sqrt(squares / static_cast<double>(width) + kEps);
    for (std::uint64_t i = 0; i < width; ++i)
      n.y[row + i] = (n.y[row + i] - mean) * rstd * weight[i] + bias[i];
    n.mean.push_back(mean);
    n.rstd.push_back(rstd);
  }
  return n;
}

std::vector<TestTensor> run_norm(const std::vector<TestTensor>& inputs) {
  const TestTensor& x = inputs.front();
  Sizes rows = x.sizes;
  rows.back() = 1;
  const DType statistics = x.dtype == DType::f64 ? DType::f64 : DType::f32;
  return run_op(OpKind::layer_norm, inputs, {empty(x.dtype, x.sizes), empty(statistics, rows), empty(statistics, rows)},
                {kEps, {}});
}

TEST(LayerNormKernels, MatchTheirDefinitionOnAnyStrides) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    for (const TestTensor& x : {random(dtype, {5, 33}, -4, 4), random_reversed(dtype, {2, 3, 17}, -4, 4),
                                random_slice(dtype, {2, 3, 9}, -4, 4)}) {
      const Sizes width = {x.sizes.back()};
      const TestTensor weight = random(dtype, width), bias = random(dtype, width);
      const Normed want = reference(x, weight.values(), bias.values());
      const std::vector<TestTensor> got = run_norm({x, weight, bias});
      expect_near(got[0], want.y, 40 * epsilon(dtype), 16 * epsilon(dtype));
      expect_near(got[1], want.mean, 40 * epsilon(got[1].dtype), 16 * epsilon(got[1].dtype));
      expect_near(got[2], want.rstd, 40 * epsilon(got[2].dtype));
    }
  }
}

TEST(LayerNormKernels, NeedNeitherWeightNorBias) {
  const TestTensor x = random(DType::f64, {4, 13}, -3, 3);
  const std::vector<double> ones(13, 1.0), zeros(13, 0.0);
  expect_near(run_norm({x})[0], reference(x, ones, zeros).y, 1e-13, 1e-14);
}

TEST(LayerNormKernels, BackwardIsTheGradient) {
  const TestTensor x = random(DType::f64, {4, 13}, -3, 3), u = random_reversed(DType::f64, {4, 13});
  const TestTensor weight = random(DType::f64, {13}), bias = random(DType::f64, {13});
  const auto forward = [&](const TestTensor& at) { return run_norm({at, weight, bias})[0]; };
  const std::vector<TestTensor> made = run_norm({x, weight, bias});
  const std::vector<TestTensor> gradients =
      run_op(OpKind::layer_norm_backward, {u, x, made[1], made[2], weight},
             {empty(DType::f64, {4, 13}), empty(DType::f64, {13}), empty(DType::f64, {13})}, {kEps, {}});
  expect_gradient(forward, x, u, gradients[0]);
  expect_gradient([&](const TestTensor& at) { return run_norm({x, at, bias})[0]; }, weight, u, gradients[1]);
  expect_gradient([&](const TestTensor& at) { return run_norm({x, weight, at})[0]; }, bias, u, gradients[2]);
}

std::vector<TestTensor> run_rms(const TestTensor& x, const TestTensor& weight) {
  Sizes rows = x.sizes;
  rows.back() = 1;
  const DType statistics = x.dtype == DType::f64 ? DType::f64 : DType::f32;
  return run_op(OpKind::rms_norm, {x, weight}, {empty(x.dtype, x.sizes), empty(statistics, rows)}, {kEps, {}});
}

TEST(RmsNormKernels, MatchTheirDefinitionOnAnyStrides) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    for (const TestTensor& x : {random(dtype, {5, 33}, -4, 4), random_reversed(dtype, {2, 3, 17}, -4, 4),
                                random_slice(dtype, {2, 3, 9}, -4, 4)}) {
      const std::uint64_t width = x.sizes.back();
      const TestTensor weight = random(dtype, {width});
      std::vector<double> y = x.values(), rstd;
      for (std::uint64_t row = 0; row < y.size(); row += width) {
        double squares = 0;
        for (std::uint64_t i = 0; i < width; ++i)
          squares += y[row + i] * y[row + i];
        rstd.push_back(1 / std::sqrt(squares / static_cast<double>(width) + kEps));
        for (std::uint64_t i = 0; i < width; ++i)
          y[row + i] *= rstd.back() * weight.values()[i];
      }
      const std::vector<TestTensor> got = run_rms(x, weight);
      expect_near(got[0], y, 40 * epsilon(dtype), 16 * epsilon(dtype));
      expect_near(got[1], rstd, 40 * epsilon(got[1].dtype));
    }
  }
}

TEST(RmsNormKernels, BackwardIsTheGradient) {
  const TestTensor x = random(DType::f64, {4, 13}, -3, 3), u = random_reversed(DType::f64, {4, 13});
  const TestTensor weight = random(DType::f64, {13});
  const std::vector<TestTensor> made = run_rms(x, weight);
  const std::vector<TestTensor> gradients =
      run_op(OpKind::rms_norm_backward, {u, x, made[1], weight}, {empty(DType::f64, {4, 13}), empty(DType::f64, {13})});
  expect_gradient([&](const TestTensor& at) { return run_rms(at, weight)[0]; }, x, u, gradients[0]);
  expect_gradient([&](const TestTensor& at) { return run_rms(x, at)[0]; }, weight, u, gradients[1]);
}

}  // namespace
}  // namespace ledger::one_op
