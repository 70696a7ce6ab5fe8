// Cross-entropy over full logits: bytes a logit (b*s*V), as transformers 5 computes it.
#include "core/models/causal_lm_loss.h"

#include <gtest/gtest.h>

#include "tests/trace/tape_tester.h"

namespace ledger {
namespace {

constexpr std::uint64_t kTokens = 2 * 16, kVocab = 1000, kLogits = kTokens * kVocab;

class CausalLmLoss : public testing::TestWithParam<DType> {
 protected:
  CausalLmLoss()
      : head(leaf(tape, shape_of({2, 16, kVocab}), true, GetParam())),
        ids(leaf(tape, shape_of({2, 16}), false, DType::i64)) {}

  Tape tape;
  Tensor head, ids;
};

INSTANTIATE_TEST_SUITE_P(Logits, CausalLmLoss, testing::Values(DType::bf16, DType::f32),
                         [](const auto& row) { return std::string(ledger::info(row.param).name); });

// bf16 logits: fp32 copy 4, log_softmax 4. fp32 logits are not copied: log_softmax 4.
TEST_P(CausalLmLoss, ForwardPeakAndWhatIsKept) {
  const Tensor logits = head * 1.0;
  const Bytes before = live_bytes(tape);
  const std::size_t start = tape.trace().events.size();
  const Tensor loss = causal_lm_loss(logits, ids);
  const Bytes copy = GetParam() == DType::bf16 ? 4 * kLogits : 0;
  // Padded labels [2,17] and shifted ones [2,16], int64; loss and total weight, fp32.
  const Bytes labels = 8 * (2 * 17 + 2 * 16);
  EXPECT_EQ(peak_bytes(tape.trace(), start) - before, copy + 4 * kLogits + labels + 8);
  EXPECT_EQ(live_bytes(tape) - before, 4 * kLogits + 8 * kTokens + 8);
}

// log_softmax 4 (saved), nll_loss's gradient 4 and log_softmax's gradient 4 a logit; then the cast to the logits'
// dtype.
TEST_P(CausalLmLoss, BackwardPeak) {
  Tensor logits = head * 1.0;
  const Tensor loss = causal_lm_loss(logits, ids);
  logits.reset();
  const Bytes before = live_bytes(tape);  // log_softmax included, and shifted labels and total weight
  const std::size_t start = tape.trace().events.size();
  tape.backward(loss);
  // The seed, 4; by then nll_loss's own saved tensors are gone.
  EXPECT_EQ(peak_bytes(tape.trace(), start) - before, 8 * kLogits + 4 - (8 * kTokens + 4));
}

TEST_P(CausalLmLoss, LogitsThemselvesAreNotKept) {
  Tensor logits = head * 1.0;
  const StorageId id = id_of(logits);
  const Tensor loss = causal_lm_loss(logits, ids);
  logits.reset();
  EXPECT_FALSE(alive(tape, id));
}

}  // namespace
}  // namespace ledger
