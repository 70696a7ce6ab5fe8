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

// One step of AdamW as the foreach and the for-loop implementation run it: moments, a root, the update.
AdamState updated_in_pieces(const AdamState& s, const TestTensor& gradient, const AdamW& adamw, int step,
                            bool divided) {
  Trace trace;
  trace.adamw = adamw;
  const std::vector<TestTensor> moments = run_op(OpKind::adamw_moments, {gradient}, {s.average, s.square}, {}, trace);
  TestTensor root = run_op(OpKind::sqrt, {moments[1]}, {moments[1]})[0];
  if (divided) root = run_op(OpKind::div_scalar, {root}, {root}, {std::sqrt(1 - std::pow(adamw.beta2, step)), {}})[0];
  const Attr attr{0, {step, divided ? 1 : 0}};
  return {run_op(OpKind::adamw_update, {moments[0], root}, {s.parameter}, attr, trace)[0], moments[0], moments[1],
          s.step};
}

TEST(AdamWInPieces, IsTheFusedKernelUpToRounding) {
  const AdamW adamw{.lr = 0.02, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.03};
  for (const DType dtype : {DType::f64, DType::f32}) {
    for (const bool divided : {false, true}) {
      AdamState fused = fresh(random_slice(dtype, {17, 33})), pieces = fused;
      for (int step = 1; step <= 5; ++step) {
        const TestTensor g = random(dtype, {17, 33});
        fused = updated(fused, g, adamw);
        pieces = updated_in_pieces(pieces, g, adamw, step, divided);
      }
      expect_near(pieces.parameter, fused.parameter.values(), 0, 20 * epsilon(dtype));
      expect_near(pieces.average, fused.average.values(), 0, 20 * epsilon(dtype));
      expect_near(pieces.square, fused.square.values(), 0, 20 * epsilon(dtype));
    }
  }
}

double bf16(double value) {
  return rounded_to(DType::bf16, value);
}

// torch.optim.AdamW(foreach=True) on bf16 tensors: each library call leaves bf16 in memory. Computed here in double, so
// two roundings of the last bit may differ from fp32 arithmetic; hence the few exceptions.
TEST(AdamWInPieces, Bf16IsRoundedAfterEveryLibraryCall) {
  const AdamW adamw{.lr = 0.01};
  const TestTensor p = random(DType::bf16, {300}, 0.5, 1), g = random(DType::bf16, {300}, 0.1, 1);
  AdamState s = fresh(p);
  s.square = random(DType::bf16, {300}, 0, 1);
  s.average = random(DType::bf16, {300});
  const AdamState got = updated_in_pieces(s, g, adamw, 3, false);
  int different = 0;
  for (std::uint64_t i = 0; i < 300; ++i) {
    const double m = bf16(s.average[i] + (1 - adamw.beta1) * (g[i] - s.average[i]));
    const double v = bf16(bf16(s.square[i] * adamw.beta2) + (1 - adamw.beta2) * g[i] * g[i]);
    const double root = bf16(bf16(bf16(std::sqrt(v)) / std::sqrt(1 - std::pow(adamw.beta2, 3))) + adamw.eps);
    const double decayed = bf16(p[i] * (1 - adamw.lr * adamw.weight_decay));
    EXPECT_EQ(decayed, p[i]) << "a decay of 1e-4 is less than half a step of bf16";
    const double want = bf16(decayed - adamw.lr / (1 - std::pow(adamw.beta1, 3)) * (m / root));
    different += got.average[i] != m || got.square[i] != v || got.parameter[i] != want;
  }
  EXPECT_LE(different, 2);
}

TEST(SgdKernels, MomentumIsASumOfDecayingGradientsAndTheStepIsAgainstIt) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    const TestTensor p = random(dtype, {3, 90}), b = random_reversed(dtype, {3, 90}), g = random_slice(dtype, {3, 90});
    const TestTensor buffer = run_op(OpKind::momentum_update, {g}, {b})[0];
    Trace trace;
    trace.adamw.lr = 0.25;
    const TestTensor moved = run_op(OpKind::sgd_update, {buffer}, {p}, {}, trace)[0];
    for (std::uint64_t i = 0; i < p.numel(); ++i) {
      EXPECT_NEAR(buffer[i], rounded_to(dtype, 0.9 * b[i]) + g[i], 2 * epsilon(dtype));
      EXPECT_EQ(moved[i], rounded_to(dtype, p[i] - 0.25 * buffer[i])) << "exact: a quarter, one rounding";
    }
  }
}

TEST(SgdKernels, AGradientOfAnotherShapeIsAFailure) {
  EXPECT_TRUE(try_op(OpKind::sgd_update, {random(DType::f32, {3})}, {random(DType::f32, {4})}).failure);
}

}  // namespace
}  // namespace ledger::one_op
