// causal_lm_loss.h - next-token cross-entropy: over full logits, or with the output layer taken in, so that logits
// exist in pieces or not at all.
#pragma once

#include "core/config/recipe.h"
#include "core/trace/operators.h"

namespace ledger {

// labels [b, s] shifted by one to the left. The padded labels stay alive beside the shifted ones: Python rebinds the
// name `labels` to them.
struct ShiftedLabels {
  Tensor padded, shifted;
};
ShiftedLabels shift_left(const Tensor& labels);

// logits [b, s, V], labels [b, s] -> scalar. Source: transformers loss/loss_utils.py, ForCausalLMLoss (5.x: labels are
// shifted, logits are not).
Tensor causal_lm_loss(const Tensor& logits, const Tensor& labels);

// The same from transformers 4.46 to 4.48: an fp32 copy beside the caller's logits, and of it all but the last position
// copied again. Source: transformers 4.48 loss/loss_utils.py, ForCausalLMLoss. (Until 4.45 the fp32 copy took the
// logits' name, which spares 2 bytes a logit.)
Tensor shifted_logits_loss(const Tensor& logits, const Tensor& labels);

// Its second half: of fp32 logits all but the last position, as a copy where that is none of their own memory.
Tensor shifted_cross_entropy(const Tensor& upcast, const Tensor& labels);

// A loss that takes the output layer's weight [V, h] and hidden states [b, s, h].
struct HeadLoss {
  Tensor loss;
  Tensor metric;  // what the model's output holds beside the loss; empty where nothing large hangs on it
};

// Gradients are made in the forward pass, chunk by chunk. Source: Liger-Kernel ops/fused_linear_cross_entropy.py.
HeadLoss fused_linear_loss(const Tensor& hidden, const Tensor& weight, const Tensor& labels);
// The same as Liger up to 0.6.1 (July 2025) has it: the output layer's gradient is summed without a copy of its size.
HeadLoss fused_linear_0_6_loss(const Tensor& hidden, const Tensor& weight, const Tensor& labels);

// Apple's Cut Cross-Entropy: logits only in registers. Source: ml-cross-entropy cce.py, cce_backward.py.
HeadLoss cut_loss(const Tensor& hidden, const Tensor& weight, const Tensor& labels);

// Chunks of 256 tokens, each checkpointed. Source: trl trainer/sft_trainer.py, _chunked_cross_entropy_loss (the
// default of SFTConfig.loss_type from 1.6 on).
inline constexpr std::uint64_t kChunkedLossRows = 256;
HeadLoss chunked_loss(const Tensor& hidden, const Tensor& weight, const Tensor& labels);

using HeadLossFunction = HeadLoss (*)(const Tensor& hidden, const Tensor& weight, const Tensor& labels);
HeadLossFunction head_loss_of(Loss loss);  // null where the loss takes full logits

// How many pieces a head loss works through: 1 for those that do not chunk.
std::uint64_t loss_chunks(Loss loss, std::uint64_t tokens, std::uint64_t hidden_size, std::uint64_t vocab_size);

}  // namespace ledger
