// Losses that take the output layer in: what they hold between forward and backward, and at their worst moment.
// Sources: Liger-Kernel ops/fused_linear_cross_entropy.py, ml-cross-entropy cce.py, trl sft_trainer.py.
#include <gtest/gtest.h>

#include "core/models/causal_lm_loss.h"
#include "tests/trace/tape_tester.h"

namespace ledger {
namespace {

constexpr std::uint64_t kBatch = 2, kSeq = 200, kHidden = 500, kVocab = 1000;
constexpr std::uint64_t kTokens = kBatch * kSeq, kNext = kBatch * (kSeq - 1), kHead = kVocab * kHidden;
constexpr Bytes kLabels = 8 * (kBatch * (kSeq + 1) + kTokens);  // padded and shifted, int64

struct HeadLossBytes : testing::Test {
  Tape tape;
  Tensor hidden = leaf(tape, shape_of({kBatch, kSeq, kHidden}), true, DType::bf16);
  Tensor weight = leaf(tape, shape_of({kVocab, kHidden}), true, DType::bf16);
  Tensor ids = leaf(tape, shape_of({kBatch, kSeq}), false, DType::i64);
  Bytes before = live_bytes(tape);
  std::size_t start = tape.trace().events.size();

  Bytes held() { return live_bytes(tape) - before; }
  Bytes peak() { return peak_bytes(tape.trace(), start) - before; }
};

// Chunks of bit_ceil(400 / ceil(1000 / 500)) = 256 tokens: two.
TEST_F(HeadLossBytes, FusedLinearKeepsGradientsAndNoLogits) {
  const Tensor loss = fused_linear_loss(hidden, weight, ids).loss;
  EXPECT_EQ(held(), 2 * kTokens * kHidden + 2 * kHead + 4);
  // At the fp32 copy of the first chunk's product: gradients, losses (fp32), mask, the chunk's logits.
  EXPECT_EQ(peak(),
            2 * kTokens * kHidden + 2 * kHead + 4 * kTokens + kTokens + 2 * 256 * kVocab + (2 + 4) * kHead + kLabels);
}

// The chunk's gradient of the head is added as it is made: no copy of it in 16 bits, and none in 32.
TEST_F(HeadLossBytes, FusedLinearOf2025AddsInOneCall) {
  const Tensor loss = fused_linear_0_6_loss(hidden, weight, ids).loss;
  EXPECT_EQ(held(), 2 * kTokens * kHidden + 2 * kHead + 4);
  // At the second chunk's logits: a name still holds the first's.
  EXPECT_EQ(peak(), 2 * kTokens * kHidden + 2 * kHead + 4 * kTokens + kTokens + 2 * (256 + 144) * kVocab + kLabels);
}

TEST_F(HeadLossBytes, FusedLinearHandsItsGradientsOver) {
  const Tensor loss = fused_linear_loss(hidden, weight, ids).loss;
  tape.backward(loss);
  EXPECT_EQ(held(), 2 * kTokens * kHidden + 2 * kHead + 4) << "made in forward, moved into .grad";
  EXPECT_TRUE(weight.grad() && hidden.grad());
}

TEST_F(HeadLossBytes, FusedLinearMakesNoGradientForAFrozenHead) {
  const Tensor frozen = leaf(tape, shape_of({kVocab, kHidden}), false, DType::bf16);
  before = live_bytes(tape);
  const Tensor loss = fused_linear_loss(hidden, frozen, ids).loss;
  EXPECT_EQ(held(), 2 * kTokens * kHidden + 4);
}

TEST(FusedLinearLoss, ChunksAreAsManyAsKeepLogitsNearTheHiddenStates) {
  // Llama-3-8B at 4096 tokens: ceil(128256 / 4096) = 32, 4096 / 32 = 128 rows.
  EXPECT_EQ(loss_chunks(Loss::fused_linear, 4096, 4096, 128256), 32u);
  EXPECT_EQ(loss_chunks(Loss::fused_linear_0_6, 4096, 4096, 128256), 32u);
  EXPECT_EQ(loss_chunks(Loss::fused_linear, 1, 4096, 128256), 1u);
  EXPECT_EQ(loss_chunks(Loss::chunked, 4097, 4096, 128256), 17u);
  EXPECT_EQ(loss_chunks(Loss::full, 4096, 4096, 128256), 1u);
}

TEST_F(HeadLossBytes, CutKeepsANumberATokenAndOneAWord) {
  const Tensor loss = cut_loss(hidden, weight, ids).loss;
  EXPECT_EQ(held(), (4 + 8) * kNext + 4 * kVocab + 4);  // logsumexp, positions; mean logits; the loss
  start = tape.trace().events.size();
  before = live_bytes(tape);
  tape.backward(loss);
  // Gradients, the vocabulary's order in 32 bits, locks for blocks of 128 rows and 64 columns, and the seed.
  const Bytes locks = 4 * 8 * ((kNext + 127) / 128 + (kVocab + 127) / 128);
  EXPECT_EQ(peak(), 2 * kTokens * kHidden + 2 * kHead + 4 * kVocab + locks + 4);
}

TEST_F(HeadLossBytes, CutKeepsASixteenBitHeadUnderAutocast) {
  const Tensor wide = leaf(tape, shape_of({kVocab, kHidden}), true, DType::f32);
  before = live_bytes(tape);
  Tensor loss;
  {
    const Tape::Autocast autocast(tape, true);
    loss = cut_loss(hidden, wide, ids).loss;
  }
  EXPECT_EQ(held(), 2 * kHead + (4 + 8) * kNext + 4 * kVocab + 4);
}

TEST_F(HeadLossBytes, ChunkedKeepsTheTokensOnceMore) {
  Tensor loss;
  {
    HeadLoss result = chunked_loss(hidden, weight, ids);
    loss = result.loss;
  }
  // Gathered hidden states and labels, the order of both, their number, the loss.
  EXPECT_EQ(held(), 2 * kNext * kHidden + 8 * kNext + 8 * kNext + 8 + 4);
}

// Two chunks, 256 and 142 tokens: nothing grows with tokens x vocabulary.
TEST_F(HeadLossBytes, ChunkedNeverHoldsMoreThanOneChunkOfLogits) {
  const Tensor loss = chunked_loss(hidden, weight, ids).loss;
  const Bytes forward = peak();
  // Beyond the kept: fp32 rows, head and logits of one chunk, or four of its [256, V] while metrics are computed.
  const Bytes kept = 2 * kNext * kHidden + 16 * kNext;
  EXPECT_LT(forward, kept + 4 * kHead + 5 * 4 * 256 * kVocab);
  start = tape.trace().events.size();
  before = live_bytes(tape);
  tape.backward(loss);
  EXPECT_TRUE(weight.grad() && hidden.grad());
  EXPECT_GT(peak(), 4 * kHead + 4 * 142 * kVocab) << "the head's fp32 copy comes back for each chunk";
}

// Of fp32 logits all but the last are copied; beside them their log-probabilities.
TEST_F(HeadLossBytes, TransformersFourCopiesShiftedLogits) {
  const Tensor logits = leaf(tape, shape_of({kBatch, kSeq, kVocab}), true, DType::f32);
  before = live_bytes(tape);
  start = tape.trace().events.size();
  const Tensor loss = shifted_logits_loss(logits, ids);
  EXPECT_EQ(peak(), 2 * 4 * kNext * kVocab + 8 * kNext + 8);
  EXPECT_EQ(held(), 4 * kNext * kVocab + 8 * kNext + 8) << "log-probabilities stay, the copy does not";
}

// 4.48 loss/loss_utils.py: 16-bit logits stay with the caller, their fp32 copy lives to the end of the function.
TEST_F(HeadLossBytes, TransformersFourUpcastsWithinTheLoss) {
  const Tensor logits = leaf(tape, shape_of({kBatch, kSeq, kVocab}), true, DType::bf16);
  before = live_bytes(tape);
  start = tape.trace().events.size();
  const Tensor loss = shifted_logits_loss(logits, ids);
  EXPECT_EQ(peak(), 4 * kBatch * kSeq * kVocab + 2 * 4 * kNext * kVocab + 8 * kNext + 8);
  EXPECT_EQ(held(), 4 * kNext * kVocab + 8 * kNext + 8);
}

}  // namespace
}  // namespace ledger
