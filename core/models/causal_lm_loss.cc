#include "core/models/causal_lm_loss.h"

namespace ledger {
namespace {

// F.cross_entropy: the log-probabilities are a temporary of the expression, kept by the graph alone.
Tensor cross_entropy(const Tensor& logits, const Tensor& targets) {
  return nll_loss(log_softmax(logits), targets);
}

}  // namespace

ShiftedLabels shift_left(const Tensor& labels) {
  Tape& tape = labels.tape();
  const Tape::In in(tape, Category::inputs);
  const Dim s = labels.dim(-1);
  Tensor padded = pad_right(labels, {plus(s.size, 1), Sym::s_plus_1}, kIgnoreIndex);
  Tensor shifted = contiguous(slice(padded, -1, 1, s));
  return {std::move(padded), std::move(shifted)};
}

Tensor causal_lm_loss(const Tensor& logits, const Tensor& labels) {
  const Dim tokens{times(logits.dim(0).size, logits.dim(1).size), Sym::tokens};
  Tensor upcast = to(logits, DType::f32);
  const ShiftedLabels shift = shift_left(labels);
  const Tensor targets = view(shift.shifted, {tokens});
  upcast = view(upcast, {tokens, logits.dim(-1)});
  return cross_entropy(upcast, targets);
}

Tensor shifted_logits_loss(const Tensor& logits, const Tensor& labels) {
  const Tensor upcast = to(logits, DType::f32);
  return shifted_cross_entropy(upcast, labels);
}

Tensor shifted_cross_entropy(const Tensor& upcast, const Tensor& labels) {
  const Dim fewer{labels.dim(1).size - 1, Sym::none};
  const Dim tokens{times(labels.dim(0).size, fewer.size), Sym::none};
  Tensor shift_logits = contiguous(slice(upcast, 1, 0, fewer));
  Tensor shift_labels;
  {
    const Tape::In in(labels.tape(), Category::inputs);
    shift_labels = contiguous(slice(labels, 1, 1, fewer));
  }
  shift_logits = view(shift_logits, {tokens, upcast.dim(-1)});
  shift_labels = view(shift_labels, {tokens});
  return cross_entropy(shift_logits, shift_labels);
}

HeadLossFunction head_loss_of(Loss loss) {
  switch (loss) {
    case Loss::chunked:
      return chunked_loss;
    case Loss::fused_linear:
      return fused_linear_loss;
    case Loss::fused_linear_0_6:
      return fused_linear_0_6_loss;
    case Loss::cut:
      return cut_loss;
    default:
      return nullptr;
  }
}

}  // namespace ledger
