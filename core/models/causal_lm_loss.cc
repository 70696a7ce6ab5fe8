#include "core/models/causal_lm_loss.h"

namespace ledger {
namespace {

constexpr std::int64_t kIgnoreIndex = -100;

// F.cross_entropy: the log-probabilities are a temporary of the expression, kept by the graph alone.
Tensor cross_entropy(const Tensor& logits, const Tensor& targets) {
  return nll_loss(log_softmax(logits), targets);
}

// The padded labels stay alive beside the shifted ones: Python rebinds the name `labels` to them.
struct ShiftedLabels {
  Tensor padded, shifted;
};

ShiftedLabels shift_left(const Tensor& labels) {
  Tape& tape = labels.tape();
  const Tape::In in(tape, Category::inputs);
  const Dim s = labels.dim(-1);
  Tensor padded = pad_right(labels, {plus(s.size, 1), Sym::s_plus_1}, kIgnoreIndex);
  Tensor shifted = contiguous(slice(padded, -1, 1, s));
  return {std::move(padded), std::move(shifted)};
}

}  // namespace

Tensor causal_lm_loss(const Tensor& logits, const Tensor& labels) {
  const Dim tokens{times(logits.dim(0).size, logits.dim(1).size), Sym::tokens};
  Tensor upcast = to(logits, DType::f32);
  const ShiftedLabels shift = shift_left(labels);
  const Tensor targets = view(shift.shifted, {tokens});
  upcast = view(upcast, {tokens, logits.dim(-1)});
  return cross_entropy(upcast, targets);
}

}  // namespace ledger
