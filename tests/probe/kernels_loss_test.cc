// Log-softmax and the negative log-likelihood: definitions, gradients and facts.
#include "one_op.h"

namespace ledger::one_op {
namespace {

std::vector<double> log_softmax(const TestTensor& x) {
  const std::uint64_t width = x.sizes.back();
  std::vector<double> y = x.values();
  for (std::uint64_t row = 0; row < y.size(); row += width) {
    double total = 0;
    for (std::uint64_t i = 0; i < width; ++i)
      total += std::exp(y[row + i]);
    for (std::uint64_t i = 0; i < width; ++i)
      y[row + i] -= std::log(total);
  }
  return y;
}

TestTensor run_log_softmax(const TestTensor& x) {
  return run_op(OpKind::log_softmax, {x}, {empty(x.dtype, x.sizes)})[0];
}

TEST(LossKernels, LogSoftmaxMatchesItsDefinition) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    for (const TestTensor& x : {random(dtype, {5, 701}, -4, 4), random_reversed(dtype, {2, 3, 33}, -4, 4)}) {
      // x - max - log(sum) cancels: what is rounded are numbers of up to 8, in the compute type. In fp64 the sum of 701
      // terms has no wider type to be taken in.
      const double absolute = dtype == DType::f64 ? 40 * epsilon(DType::f64) : 8 * epsilon(DType::f32);
      expect_near(run_log_softmax(x), log_softmax(x), epsilon(dtype), absolute);
    }
  }
}

TEST(LossKernels, LogSoftmaxStaysFiniteForLargeLogits) {
  const TestTensor y = run_log_softmax(dense(DType::f32, {1, 3}, {1e4, 1e4, -1e4}));
  EXPECT_NEAR(y[0], -std::log(2.0), 1e-6);
  EXPECT_NEAR(y[2], -2e4 - std::log(2.0), 1e-2);
}

TEST(LossKernels, LogSoftmaxBackwardIsItsGradient) {
  const TestTensor x = random(DType::f64, {4, 13}, -3, 3), u = random(DType::f64, {4, 13});
  const TestTensor gradient =
      run_op(OpKind::log_softmax_backward, {u, run_log_softmax(x)}, {empty(DType::f64, {4, 13})})[0];
  expect_gradient(run_log_softmax, x, u, gradient);
}

std::vector<TestTensor> run_nll(const TestTensor& x, const TestTensor& targets) {
  return run_op(OpKind::nll_loss, {x, targets}, {empty(x.dtype, {}), empty(x.dtype, {})});
}

TEST(LossKernels, NllLossAveragesOverTargetsThatAreNotIgnored) {
  const TestTensor x = dense(DType::f32, {4, 2}, {-1, -2, -3, -4, -5, -6, -7, -8});
  const TestTensor targets = dense(DType::i64, {4}, {1, -100, 0, 1});
  const std::vector<TestTensor> out = run_nll(x, targets);
  EXPECT_EQ(out[0][0], 5);  // (2 + 5 + 8) / 3
  EXPECT_EQ(out[1][0], 3);
}

TEST(LossKernels, NllLossBackwardIsItsGradientAndZeroWhereIgnored) {
  const TestTensor x = random(DType::f64, {5, 7}), u = random(DType::f64, {});
  TestTensor targets = random_ids({5}, 7);
  targets.memory[2] = -100;
  const TestTensor weight = run_nll(x, targets)[1];
  const TestTensor gradient = run_op(OpKind::nll_loss_backward, {u, targets, weight}, {empty(DType::f64, {5, 7})})[0];
  expect_gradient([&](const TestTensor& at) { return run_nll(at, targets)[0]; }, x, u, gradient);
  for (std::uint64_t i = 14; i < 21; ++i)
    EXPECT_EQ(gradient[i], 0);
}

TEST(LossKernels, TheLossOfEqualLogitsIsTheLogarithmOfTheVocabulary) {
  const TestTensor y = run_log_softmax(filled(DType::f32, {6, 61}, 0));
  EXPECT_NEAR(run_nll(y, random_ids({6}, 61))[0][0], std::log(61.0), 1e-6);
}

TEST(LossKernels, GradientsOfLogitsSumToZeroInEachRow) {
  const TestTensor y = run_log_softmax(random(DType::f64, {6, 61}));
  const TestTensor targets = random_ids({6}, 61);
  const TestTensor one = filled(DType::f64, {}, 1), count = filled(DType::f64, {}, 6);
  const TestTensor dy = run_op(OpKind::nll_loss_backward, {one, targets, count}, {empty(DType::f64, {6, 61})})[0];
  const TestTensor dx = run_op(OpKind::log_softmax_backward, {dy, y}, {empty(DType::f64, {6, 61})})[0];
  const TestTensor rows = run_op(OpKind::sum, {dx}, {empty(DType::f64, {6, 1})})[0];
  for (std::uint64_t i = 0; i < 6; ++i)
    EXPECT_NEAR(rows[i], 0, 1e-15);
}

TEST(LossKernels, TargetsOutsideTheClassesAreAFailure) {
  const TestTensor x = random(DType::f32, {1, 3}), target = filled(DType::i64, {1}, 3);
  EXPECT_TRUE(try_op(OpKind::nll_loss, {x, target}, {empty(DType::f32, {}), empty(DType::f32, {})}).failure);
}

}  // namespace
}  // namespace ledger::one_op
