// megatron_ops.h - the fused operators of Megatron-Core and Transformer Engine: what each allocates and saves. Sizes
// only; no executor computes them.
#pragma once

#include "core/trace/operators.h"

namespace ledger::megatron {

// How the ranks of a tensor-parallel group share a product: of `tp` ranks, the sequence cut among them or not; and
// whether weight gradients are added to the main ones by the product itself.
struct Sharing {
  std::uint64_t tp = 1;
  bool sequence = false;
  bool fused_gradients = true;
};

// layernorm_linear.py: x -> norm -> x W^T (+ bias). Saves x, the normed x (of this rank's tokens) and the statistics.
// Without `weight` a norm alone, which saves x and statistics (module/layernorm.py).
Tensor norm_linear(const Tensor& x, const Tensor& norm, const Tensor& weight, const Tensor& bias, Sharing sharing);

// linear.py with parallel_mode row: partial sums that are added up, or added and scattered. Saves x.
Tensor row_linear(const Tensor& x, const Tensor& weight, Sharing sharing);

// layers.py, LinearWithGradAccumulationAndAsyncCommunication, the output layer's: saves x. `gathered` is the buffer
// that its full input is gathered to in both passes (with sequence parallelism).
Tensor column_linear(const Tensor& x, const Tensor& weight, const Tensor& gathered, Sharing sharing);

// fused_bias_gelu.py, fused_bias_swiglu.py: save their input.
Tensor bias_activation(const Tensor& x, const Tensor& bias, bool gated);

// fused_bias_dropout.py, compiled: residual + dropout(x + bias). Saves the mask.
Tensor bias_dropout_add(const Tensor& x, const Tensor& bias, const Tensor& residual, double p);

// SplitAlongDim of [s, b, groups, (n + 2) d] in queries, keys and values: views; backward joins their gradients.
struct Heads {
  Tensor q, k, v;
};
Heads split_qkv(const Tensor& mixed, Dim q_width, Dim d);

// TE's rotary kernel: turns x into a new tensor and saves the frequencies alone.
Tensor fused_rope(const Tensor& x);

// cross_entropy.py: logits in this rank's part of the vocabulary -> losses [s, b]; keeps an fp32 copy of the logits, in
// which probabilities and then the gradient take shape.
Tensor vocab_parallel_cross_entropy(const Tensor& logits, const Tensor& labels);

// p2p_communication.py: sends x on; a scalar that stands for it, whose backward receives x's gradient.
Tensor send_forward(const Tensor& x);

// mappings.py: to this rank's tokens and back.
Tensor scatter_to_sequence(const Tensor& x, Dim shard);

}  // namespace ledger::megatron
