// causal_lm_loss.h - next-token cross-entropy over full logits, as transformers 5 computes it.
#pragma once

#include "core/trace/operators.h"

namespace ledger {

// logits [b, s, V], labels [b, s] -> scalar. Source: transformers loss/loss_utils.py, ForCausalLMLoss (5.x: labels are
// shifted, logits are not).
Tensor causal_lm_loss(const Tensor& logits, const Tensor& labels);

}  // namespace ledger
