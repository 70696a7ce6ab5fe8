// The engine's moments: when a node's saved tensors die, who owns a gradient, how gradients that meet are summed.
#include <gtest/gtest.h>

#include "tests/trace/tape_tester.h"

namespace ledger {
namespace {

std::size_t now(Tape& tape) {
  return tape.trace().events.size();
}

const Shape kSquare = {{4, Sym::none}, {4, Sym::none}};  // 64 bytes in fp32

TEST(Autograd, ANodesSavedTensorsDieWhenItsBackwardHasRun) {
  Tape tape;
  const Tensor w = leaf(tape, kSquare);
  Tensor loss = mean_all(silu(silu(w * 1.0)));
  const std::size_t start = now(tape);
  tape.backward(loss);
  // Seed; the mean's gradient divided by 16; then each silu_backward frees the gradient that came in and the input that
  // its node had saved before the next node runs. The last gradient is scaled into w's .grad, the seed dies at the end.
  EXPECT_EQ(story(tape.trace(), start),
            "+ones_like +div.Scalar +silu_backward -div.Scalar -silu +silu_backward -silu_backward -mul.Scalar "
            "+mul.Scalar -silu_backward -ones_like");
  EXPECT_EQ(live_bytes(tape), 64u + 64u + 4u);  // w, its gradient, the loss
}

TEST(Autograd, TheLossKeepsNothingAfterBackward) {
  Tape tape;
  const Tensor w = leaf(tape, kSquare);
  Tensor loss = mean_all(pow(w, 2));
  tape.backward(loss);
  const Bytes before = live_bytes(tape);
  loss.reset();
  EXPECT_EQ(before - live_bytes(tape), 4u);
}

TEST(Autograd, AFreshGradientIsStolenNotCopied) {
  Tape tape;
  const Tensor w = leaf(tape, kSquare);
  tape.backward(mean_all(pow(w, 2)));
  EXPECT_EQ(births(tape.trace(), OpKind::clone), 0u);
  EXPECT_EQ(tape.trace().storages[id_of(w.grad())].op, OpKind::mul);  // in0 * (2 * self)
}

TEST(Autograd, AGradientOfTwoOwnersIsCopiedOnce) {
  Tape tape;
  const Tensor a = leaf(tape, kSquare), b = leaf(tape, kSquare);
  tape.backward(mean_all(a + b));  // add hands the same gradient to both
  EXPECT_EQ(births(tape.trace(), OpKind::clone), 1u);
  EXPECT_NE(id_of(a.grad()), id_of(b.grad()));
}

TEST(Autograd, ATransposedGradientIsCopied) {
  Tape tape;
  const Tensor w = leaf(tape, shape_of({2, 3}));
  tape.backward(mean_all(pow(transpose(w, 0, 1), 2)));
  // pow's gradient is laid out like its first factor, the mean's gradient, which is contiguous in the transposed shape.
  EXPECT_EQ(births(tape.trace(), OpKind::clone), 1u);
}

TEST(Autograd, AWeightsGradientFromALinearIsStolen) {
  Tape tape;
  const Tensor w = leaf(tape, shape_of({5, 3})), x = leaf(tape, shape_of({7, 3}), false);
  tape.backward(mean_all(linear(x, w, Tensor())));
  EXPECT_EQ(births(tape.trace(), OpKind::clone), 0u);
  EXPECT_EQ(tape.trace().storages[id_of(w.grad())].bytes, 60u);  // 5 x 3 x 4
}

TEST(Autograd, SlicesOfOneGradientShareItsMemory) {
  Tape tape;
  Tensor a = leaf(tape, kSquare), b = leaf(tape, kSquare);
  tape.backward(mean_all(cat(a, b, 0)));
  EXPECT_EQ(id_of(a.grad()), id_of(b.grad()));
  const StorageId both = id_of(a.grad());
  EXPECT_EQ(tape.trace().storages[both].bytes, 128u);
  a.clear_grad();
  EXPECT_TRUE(alive(tape, both));
  b.clear_grad();
  EXPECT_FALSE(alive(tape, both));
}

TEST(Autograd, AGradientIsRelabelledWhenItBecomesGrad) {
  Tape tape;
  const Tensor w = leaf(tape, kSquare);
  tape.backward(mean_all(pow(w, 2)));
  EXPECT_EQ(tape.trace().storages[id_of(w.grad())].category, Category::activation_gradients);
  Census census(tape.trace());
  for (const Event& event : tape.trace().events)
    census.apply(event);
  EXPECT_EQ(census.category(id_of(w.grad())), Category::gradients);
  EXPECT_EQ(tape.trace().parameters.front().gradient, id_of(w.grad()));
}

TEST(Autograd, ASecondBackwardAddsInPlace) {
  Tape tape({.operands = true});
  const Tensor w = leaf(tape, kSquare);
  tape.backward(mean_all(pow(w, 2)));
  const StorageId first = id_of(w.grad());
  const Tensor loss = mean_all(pow(w, 2));
  const std::size_t start = now(tape);
  tape.backward(loss);
  EXPECT_EQ(id_of(w.grad()), first);
  EXPECT_EQ(runs(tape.trace(), OpKind::add_inplace), 1u);
  EXPECT_EQ(live_bytes(tape), 128u + 4);  // w, its gradient, the loss
  // At most: w, grad, and of pow's rule in0, self^1, 2 * self and their product, which is the new gradient; loss, seed.
  EXPECT_EQ(peak_bytes(tape.trace(), start), 6 * 64u + 8);
}

TEST(Autograd, FrozenLeavesGetNoGradient) {
  Tape tape({.operands = true});
  const Tensor x = leaf(tape, shape_of({7, 3})), w = leaf(tape, shape_of({5, 3}), false);
  tape.backward(mean_all(linear(x, w, Tensor())));
  EXPECT_FALSE(w.grad());
  EXPECT_TRUE(x.grad());
  EXPECT_EQ(runs(tape.trace(), OpKind::mm), 2u);  // forward, and the input's gradient alone
}

TEST(Autograd, BackwardOfWhatNeedsNoGradientDoesNothing) {
  Tape tape;
  const Tensor loss = mean_all(leaf(tape, kSquare, false));
  const std::size_t start = now(tape);
  tape.backward(loss);
  EXPECT_EQ(now(tape), start);
}

// --- gradients that meet -------------------------------------------------------------------------------------------

struct Meeting {
  Bytes peak = 0;  // within backward
  std::size_t adds = 0;
  std::size_t adds_in_place = 0;
};

Meeting tied_weight(bool in_place) {
  Tape tape({.operands = true, .accumulate_in_place = in_place});
  const Tensor x = leaf(tape, kSquare, false);
  const Tensor w = leaf(tape, kSquare);
  const Tensor hidden = linear(x, w, Tensor());
  const Tensor loss = mean_all(linear(hidden, w, Tensor()));
  const std::size_t start = now(tape);
  tape.backward(loss);
  return {peak_bytes(tape.trace(), start), runs(tape.trace(), OpKind::add), runs(tape.trace(), OpKind::add_inplace)};
}

TEST(Autograd, TiedWeightsAreSummedIntoANewTensor) {
  const Meeting meeting = tied_weight(false);
  EXPECT_EQ(meeting.adds, 1u);
  EXPECT_EQ(meeting.adds_in_place, 0u);
  // x, w, hidden (a handle), loss and seed; both gradients and their sum.
  EXPECT_EQ(meeting.peak, 3 * 64u + 8 + 3 * 64u);
}

TEST(Autograd, TiedWeightsAreSummedInPlaceWhenAsked) {
  const Meeting meeting = tied_weight(true);
  EXPECT_EQ(meeting.adds, 0u);
  EXPECT_EQ(meeting.adds_in_place, 1u);
  // At the first linear's product: x, w, hidden, loss, seed, the first gradient, hidden's gradient and the second.
  EXPECT_EQ(meeting.peak, 3 * 64u + 8 + 3 * 64u);
}

TEST(Autograd, ARunningGradientHeldTwiceIsNotWrittenInto) {
  Tape tape({.operands = true, .accumulate_in_place = true});
  const Tensor w = leaf(tape, kSquare);
  const Tensor x = w * 1.0;
  tape.backward(mean_all(x + x));  // both contributions are one tensor
  EXPECT_EQ(runs(tape.trace(), OpKind::add_inplace), 0u);
  EXPECT_EQ(runs(tape.trace(), OpKind::add), 2u);  // forward, and the sum of the two contributions
}

// --- shapes and dtypes of gradients ----------------------------------------------------------------------------------

struct Broadcast {
  const char* name;
  Sizes a;
  Sizes b;
  Sizes result;
  std::size_t sums;  // in backward
};

void PrintTo(const Broadcast& c, std::ostream* out) {
  *out << c.name;
}

class Broadcasting : public testing::TestWithParam<Broadcast> {};

TEST_P(Broadcasting, ResultsGrowAndGradientsAreSummedBack) {
  Tape tape;
  const Tensor a = leaf(tape, shape_of(GetParam().a)), b = leaf(tape, shape_of(GetParam().b));
  const Tensor product = a * b;
  EXPECT_TRUE(product.shape().same_sizes(shape_of(GetParam().result)));
  tape.backward(mean_all(product));
  EXPECT_EQ(births(tape.trace(), OpKind::sum), GetParam().sums);
  EXPECT_TRUE(a.grad().shape().same_sizes(a.shape()));
  EXPECT_TRUE(b.grad().shape().same_sizes(b.shape()));
}

INSTANTIATE_TEST_SUITE_P(Cases, Broadcasting,
                         testing::Values(Broadcast{"same", {2, 3}, {2, 3}, {2, 3}, 0},
                                         Broadcast{"vector", {2, 3}, {3}, {2, 3}, 1},
                                         Broadcast{"vector_first", {3}, {2, 3}, {2, 3}, 1},
                                         Broadcast{"column", {2, 3}, {2, 1}, {2, 3}, 1},
                                         Broadcast{"outer", {2, 1}, {1, 3}, {2, 3}, 2},
                                         Broadcast{"heads", {2, 4, 5, 8}, {1, 1, 5, 8}, {2, 4, 5, 8}, 1},
                                         Broadcast{"scalar", {2, 3}, {}, {2, 3}, 1}),
                         [](const auto& row) { return std::string(row.param.name); });

TEST(Autograd, AnExpandedInputsGradientIsSummed) {
  Tape tape;
  const Tensor w = leaf(tape, shape_of({1, 3}));
  tape.backward(mean_all(pow(expand(w, shape_of({4, 3})), 2)));
  EXPECT_EQ(births(tape.trace(), OpKind::sum), 1u);
  EXPECT_EQ(tape.trace().storages[id_of(w.grad())].bytes, 12u);
}

TEST(Autograd, MixedDtypesPromoteAndGradientsAreCastBack) {
  Tape tape;
  const Tensor half = leaf(tape, kSquare, true, DType::bf16), full = leaf(tape, kSquare);
  const Tensor product = half * full;
  EXPECT_EQ(product.dtype(), DType::f32);
  tape.backward(mean_all(product));
  EXPECT_EQ(half.grad().dtype(), DType::bf16);
  EXPECT_EQ(full.grad().dtype(), DType::f32);
  EXPECT_EQ(births(tape.trace(), OpKind::to_copy), 1u);  // no cast of the operand: the kernel reads bf16
}

TEST(Autograd, ACastsGradientGoesBackToItsDtype) {
  Tape tape;
  const Tensor w = leaf(tape, kSquare, true, DType::bf16);
  tape.backward(mean_all(pow(to(w, DType::f32), 2)));
  EXPECT_EQ(w.grad().dtype(), DType::bf16);
  EXPECT_EQ(births(tape.trace(), OpKind::to_copy), 2u);
}

}  // namespace
}  // namespace ledger
