// Liger-Kernel's operators: what they keep, and that their gradients lie where what they are made of lay.
// Source: Liger-Kernel 0.8.2 ops/{rms_norm,swiglu,rope}.py.
#include "core/trace/liger_ops.h"

#include <gtest/gtest.h>

#include "tests/trace/tape_tester.h"

namespace ledger {
namespace {

constexpr std::uint64_t kBatch = 2, kSeq = 48, kHeads = 3, kHeadDim = 8, kWidth = 24, kTokens = kBatch * kSeq;

struct LigerBytes : testing::Test {
  Tape tape;
  std::size_t start = 0;
  Bytes before = 0;

  Tensor rows(std::uint64_t width) { return leaf(tape, shape_of({kBatch, kSeq, width}), true, DType::bf16); }
  void begin() {
    before = live_bytes(tape);
    start = tape.trace().events.size();
  }
  Bytes held() { return live_bytes(tape) - before; }
  Bytes peak() { return peak_bytes(tape.trace(), start) - before; }
};

TEST_F(LigerBytes, ANormKeepsFourBytesATokenBesideItsInputAndResult) {
  const Tensor x = rows(kWidth), weight = leaf(tape, shape_of({kWidth}), true, DType::bf16);
  begin();
  const Tensor y = liger::rms_norm(x, weight, {});
  EXPECT_EQ(held(), 2 * kTokens * kWidth + 4 * kTokens);
  EXPECT_EQ(peak(), held());
}

// What the operator `name` made in `story`.
std::size_t births_of(const std::string& story, const std::string& name) {
  std::size_t count = 0;
  for (std::size_t at = story.find("+" + name); at != std::string::npos; at = story.find("+" + name, at + 1))
    ++count;
  return count;
}

TEST_F(LigerBytes, TheGradientOfANormTakesThePlaceOfTheOneThatCame) {
  const Tensor x = rows(kWidth), weight = leaf(tape, shape_of({kWidth}), true, DType::bf16);
  const Tensor loss = mean_all(pow(liger::rms_norm(input_of(x), weight, {}), 2));
  begin();
  tape.backward(loss);
  EXPECT_EQ(births_of(story(tape.trace(), start), "_fused_rms_norm_backward"), 1u) << "the weight's, which is small";
  EXPECT_EQ(tape.trace().storages[id_of(weight.grad())].bytes, 2 * kWidth);
  EXPECT_EQ(tape.trace().storages[id_of(x.grad())].bytes, 2 * kTokens * kWidth);
}

// Gemma 2, Gemma 3 and OLMo 2: in_place=False.
TEST_F(LigerBytes, ElsewhereItIsMadeOfZeros) {
  const Tensor x = rows(kWidth), weight = leaf(tape, shape_of({kWidth}), true, DType::bf16);
  const Tensor normed = liger::rms_norm(input_of(x), weight, {.in_place = false, .gemma = true});
  const Tensor loss = mean_all(pow(normed, 2));
  begin();
  tape.backward(loss);
  const std::string told = story(tape.trace(), start);
  EXPECT_EQ(births_of(told, "zeros"), 1u) << told;
  EXPECT_EQ(births_of(told, "_fused_rms_norm_backward"), 1u);
}

TEST_F(LigerBytes, AFrozenWeightGetsNoGradient) {
  const Tensor x = rows(kWidth), weight = leaf(tape, shape_of({kWidth}), false, DType::bf16);
  const Tensor loss = mean_all(pow(liger::rms_norm(input_of(x), weight, {}), 2));
  begin();
  tape.backward(loss);
  EXPECT_EQ(births_of(story(tape.trace(), start), "_fused_rms_norm_backward"), 0u);
  EXPECT_TRUE(x.grad());
}

TEST_F(LigerBytes, SiluMulKeepsGateAndUpWhoseGradientsTakeTheirPlaces) {
  const Tensor a = rows(kWidth), b = rows(kWidth);
  begin();
  Tensor product;
  StorageId of_gate = kNoStorage, of_up = kNoStorage;
  {
    const Tensor gate = input_of(a);
    const Tensor up = input_of(b);
    of_gate = id_of(gate);
    of_up = id_of(up);
    product = liger::silu_mul(gate, up);
  }
  EXPECT_EQ(held(), 3 * 2 * kTokens * kWidth);
  const Tensor loss = mean_all(pow(product, 2));
  product.reset();
  start = tape.trace().events.size();
  tape.backward(loss);
  EXPECT_EQ(births_of(story(tape.trace(), start), "swiglu"), 0u) << story(tape.trace(), start);
  std::vector<StorageId> relabelled;
  for (std::size_t i = start; i < tape.trace().events.size(); ++i) {
    const Event& event = tape.trace().events[i];
    if (event.type == EventType::label) relabelled.push_back(event.id);
  }
  ASSERT_GE(relabelled.size(), 2u) << "later ones are the leaves' own gradients";
  EXPECT_EQ(relabelled[0], of_gate);
  EXPECT_EQ(relabelled[1], of_up);
  EXPECT_TRUE(a.grad() && b.grad());
}

TEST_F(LigerBytes, QueriesTurnWhereTheyLie) {
  const Tensor q = rows(kHeads * kHeadDim);
  const Tensor cos = leaf(tape, shape_of({1, kSeq, kHeadDim}), false, DType::bf16);
  const Tensor sin = leaf(tape, shape_of({1, kSeq, kHeadDim}), false, DType::bf16);
  const Tensor frequencies = leaf(tape, shape_of({kHeadDim / 2}), false);
  const Shape heads = shape_of({kBatch, kSeq, kHeads, kHeadDim});
  const Tensor lying = transpose(view(input_of(q), heads), 1, 2);
  begin();
  const Tensor turned = liger::rope(lying, cos, sin, frequencies);
  EXPECT_EQ(held(), 0u);
  EXPECT_EQ(id_of(turned), id_of(lying));
  EXPECT_EQ(turned.dim(1).size, kHeads);
  EXPECT_EQ(turned.dim(2).size, kSeq);
}

TEST_F(LigerBytes, WhatDoesNotLieAsTheKernelReadsItIsCopied) {
  const Tensor q = leaf(tape, shape_of({kBatch, kHeads, kSeq, kHeadDim}), true, DType::bf16);
  const Tensor table = leaf(tape, shape_of({1, kSeq, kHeadDim}), false, DType::bf16);
  const Tensor frequencies = leaf(tape, shape_of({kHeadDim / 2}), false);
  begin();
  const Tensor turned = liger::rope(q, table, table, frequencies);
  EXPECT_EQ(held(), 2 * kTokens * kHeads * kHeadDim);
  EXPECT_NE(id_of(turned), id_of(q));
}

}  // namespace
}  // namespace ledger
