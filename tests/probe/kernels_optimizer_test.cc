// AdamW as PyTorch's fused kernel: closed forms of its first steps, and where it rounds.
#include "one_op.h"

namespace ledger::one_op {
namespace {

struct AdamState {
  TestTensor parameter, average, square, step;
};

AdamState fresh(const TestTensor& parameter) {
  return {parameter, filled(parameter.dtype, parameter.sizes, 0), filled(parameter.dtype, parameter.sizes, 0),
          filled(DType::f32, {}, 0)};
}

AdamState updated(const AdamState& s, const TestTensor& gradient, const AdamW& adamw) {
  Trace trace;
  trace.adamw = adamw;
  const std::vector<TestTensor> out =
      run_op(OpKind::adamw, {gradient}, {s.parameter, s.average, s.square, s.step}, {}, trace);
  return {out[0], out[1], out[2], out[3]};
}

TEST(AdamWKernel, FirstStepMovesEveryParameterByTheLearningRateAgainstItsGradient) {
  const TestTensor p = random(DType::f64, {3, 200}), g = random(DType::f64, {3, 200});
  const AdamState s = updated(fresh(p), g, {.lr = 0.01, .eps = 1e-30, .weight_decay = 0});
  for (std::uint64_t i = 0; i < p.numel(); ++i) {
    ASSERT_NEAR(s.parameter[i], p[i] - std::copysign(0.01, g[i]), 1e-14);
  }
  EXPECT_EQ(s.step[0], 1);
}

TEST(AdamWKernel, WeightDecayIsDecoupledFromTheGradient) {
  const TestTensor p = random(DType::f64, {50});
  const AdamState s = updated(fresh(p), filled(DType::f64, {50}, 0), {.lr = 0.5, .weight_decay = 0.1});
  for (std::uint64_t i = 0; i < 50; ++i)
    EXPECT_NEAR(s.parameter[i], p[i] * 0.95, 1e-15);
}

// Loshchilov, Hutter (2019), algorithm 2, written out.
TEST(AdamWKernel, FiveStepsFollowThePaper) {
  const AdamW adamw{.lr = 0.02, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.03};
  for (const DType dtype : {DType::f64, DType::f32}) {
    AdamState s = fresh(random(dtype, {17, 33}));
    std::vector<double> p = s.parameter.values(), m(p.size()), v(p.size());
    for (int step = 1; step <= 5; ++step) {
      const TestTensor g = random(dtype, {17, 33});
      s = updated(s, g, adamw);
      for (std::size_t i = 0; i < p.size(); ++i) {
        m[i] = adamw.beta1 * m[i] + (1 - adamw.beta1) * g[i];
        v[i] = adamw.beta2 * v[i] + (1 - adamw.beta2) * g[i] * g[i];
        const double m_hat = m[i] / (1 - std::pow(adamw.beta1, step)), v_hat = v[i] / (1 - std::pow(adamw.beta2, step));
        p[i] = p[i] * (1 - adamw.lr * adamw.weight_decay) - adamw.lr * m_hat / (std::sqrt(v_hat) + adamw.eps);
      }
    }
    expect_near(s.parameter, p, 0, 20 * epsilon(dtype));
    expect_near(s.average, m, 0, 20 * epsilon(dtype));
    expect_near(s.square, v, 0, 20 * epsilon(dtype));
    EXPECT_EQ(s.step[0], 5);
  }
}

TEST(AdamWKernel, Bf16ParametersAndMomentsAreRoundedOnceEach) {
  const TestTensor p = random(DType::bf16, {300}, 0.5, 1), g = random(DType::bf16, {300});
  const AdamW adamw{.lr = 0.01, .weight_decay = 0};
  const AdamState narrow = updated(fresh(p), g, adamw);
  TestTensor wide_p = p, wide_g = g;
  wide_p.dtype = wide_g.dtype = DType::f32;
  const AdamState wide = updated(fresh(wide_p), wide_g, adamw);
  for (std::uint64_t i = 0; i < 300; ++i) {
    ASSERT_EQ(narrow.parameter[i], rounded_to(DType::bf16, wide.parameter[i]));
    ASSERT_EQ(narrow.average[i], rounded_to(DType::bf16, wide.average[i]));
    ASSERT_EQ(narrow.square[i], rounded_to(DType::bf16, wide.square[i]));
  }
}

}  // namespace
}  // namespace ledger::one_op
