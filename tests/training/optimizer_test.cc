// Optimizer and clipping: states in the parameters' dtype, made at the first step, and no temporaries of a tensor's
// size.
#include "core/training/optimizer.h"

#include <gtest/gtest.h>

#include "tests/trace/tape_tester.h"

namespace ledger {
namespace {

std::vector<Tensor> with_gradients(Tape& tape, DType dtype) {
  std::vector<Tensor> parameters = {leaf(tape, shape_of({10, 30}), true, dtype),
                                    leaf(tape, shape_of({30}), true, dtype)};
  tape.backward(mean_all(parameters[0] * parameters[1]));
  return parameters;
}

class FusedAdamWTest : public testing::TestWithParam<DType> {};

INSTANTIATE_TEST_SUITE_P(Dtypes, FusedAdamWTest, testing::Values(DType::bf16, DType::f32),
                         [](const auto& row) { return std::string(ledger::info(row.param).name); });

TEST_P(FusedAdamWTest, TwoMomentsInTheParametersDtypeAndACounter) {
  Tape tape;
  const std::vector<Tensor> parameters = with_gradients(tape, GetParam());
  const Bytes before = live_bytes(tape);
  FusedAdamW optimizer;
  std::size_t start = tape.trace().events.size();
  optimizer.step(tape, parameters);
  // 330 elements, two moments; an fp32 counter for each of the two parameters.
  EXPECT_EQ(live_bytes(tape) - before, 2 * 330 * element_bytes(GetParam()) + 2 * 4);
  EXPECT_EQ(peak_bytes(tape.trace(), start), live_bytes(tape));
  start = tape.trace().events.size();
  optimizer.step(tape, parameters);
  EXPECT_EQ(story(tape.trace(), start), "");
}

TEST_P(FusedAdamWTest, ClippingTakesScalarsOnly) {
  Tape tape;
  const std::vector<Tensor> parameters = with_gradients(tape, GetParam());
  const Bytes before = live_bytes(tape);
  const std::size_t start = tape.trace().events.size();
  clip_grad_norm(tape, parameters, 1.0);
  EXPECT_EQ(live_bytes(tape), before);
  // Two norms, their stack; total norm, + 1e-6, reciprocal and the scaled coefficient: at most seven numbers at once.
  EXPECT_LE(peak_bytes(tape.trace(), start) - before, 7 * element_bytes(GetParam()));
}

TEST(Optimizer, ParametersWithoutGradientAreLeftAlone) {
  Tape tape({.operands = true});
  const std::vector<Tensor> parameters = {leaf(tape, shape_of({4})), leaf(tape, shape_of({4}))};
  tape.backward(mean_all(pow(parameters[0], 2)));
  clip_grad_norm(tape, parameters, 1.0);
  FusedAdamW().step(tape, parameters);
  EXPECT_EQ(runs(tape.trace(), OpKind::adamw), 1u);
  EXPECT_EQ(runs(tape.trace(), OpKind::mul_inplace), 1u);
}

TEST(Optimizer, ClippingNothingIsNoError) {
  Tape tape;
  const Tensor frozen = leaf(tape, shape_of({4}));
  clip_grad_norm(tape, {frozen}, 1.0);
  EXPECT_EQ(live_bytes(tape), 16u);
}

}  // namespace
}  // namespace ledger
