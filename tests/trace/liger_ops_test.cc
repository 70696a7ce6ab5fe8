// Liger-Kernel's operators: what they keep, and that their gradients lie where what they are made of lay.
// Source: Liger-Kernel 0.8.2 ops/{rms_norm,swiglu,rope}.py.
#include "core/trace/liger_ops.h"

#include <gtest/gtest.h>

#include "tests/trace/tape_tester.h"

namespace ledger {
namespace {

constexpr std::uint64_t kBatch = 2, kSeq = 48, kHeads = 3, kHeadDim = 8, kHidden = 24, kTokens = kBatch * kSeq;

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
  const Tensor x = rows(kHidden), weight = leaf(tape, shape_of({kHidden}), true, DType::bf16);
  begin();
  const Tensor y = liger::rms_norm(x, weight, 1e-6);
  EXPECT_EQ(held(), 2 * kTokens * kHidden + 4 * kTokens);
  EXPECT_EQ(peak(), held());
}

TEST_F(LigerBytes, TheGradientOfANormTakesThePlaceOfTheOneThatCame) {
  const Tensor x = rows(kHidden), weight = leaf(tape, shape_of({kHidden}), true, DType::bf16);
  Tensor loss = sum_to(liger::rms_norm(input_of(x), weight, 1e-6) * 2.0, Shape{});
  begin();
  tape.backward(loss);
  // The gradient of the product with 2, in which the norm's is written and which becomes that of the leaf; the weight's.
  EXPECT_EQ(story(tape.trace(), start).find("_fused_rms_norm_backward"),
            story(tape.trace(), start).rfind("_fused_rms_norm_backward"))
      << "the weight's gradient alone: " << story(tape.trace(), start);
}

TEST_F(LigerBytes, AFrozenWeightGetsNoGradient) {
  const Tensor x = rows(kHidden), weight = leaf(tape, shape_of({kHidden}), false, DType::bf16);
  Tensor loss = sum_to(liger::rms_norm(input_of(x), weight, 1e-6), Shape{});
  begin();
  tape.backward(loss);
  EXPECT_EQ(story(tape.trace(), start).find("_fused_rms_norm_backward"), std::string::npos);
  EXPECT_TRUE(x.grad());
}

TEST_F(LigerBytes, SiluMulKeepsGateAndUpWhoseGradientsTakeTheirPlaces) {
  const Tensor a = rows(kHidden), b = rows(kHidden);
  begin();
  Tensor loss;
  {
    Tensor product;
    {
      const Tensor gate = input_of(a);
      const Tensor up = input_of(b);
      product = liger::silu_mul(gate, up);
    }
    EXPECT_EQ(held(), 3 * 2 * kTokens * kHidden);
    loss = sum_to(product, Shape{});
  }
  start = tape.trace().events.size();
  tape.backward(loss);
  EXPECT_EQ(story(tape.trace(), start).find("swiglu"), std::string::npos) << story(tape.trace(), start);
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
  EXPECT_EQ(turned.shape(), lying.shape());
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
