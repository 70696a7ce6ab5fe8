// megatron_ops.h - the fused operators of Megatron-Core and Transformer Engine: what each allocates, saves and
// computes.
#pragma once

#include "core/models/own_rows.h"

namespace ledger::megatron {

// How the ranks of a tensor-parallel group share a product: the sequence cut among them or not; where the weight's
// gradient adds up, if the product itself adds to it (gradient_accumulation_fusion); and whether PyTorch computes it,
// in its own workspace.
struct Sharing {
  std::uint64_t tp = 1;
  bool sequence = false;
  Tensor main_gradient;
  bool torch = false;
};

// layernorm_linear.py: x -> norm -> x W^T (+ bias). Saves x, the normed x (of this rank's tokens) and the statistics.
// Without `weight` a norm alone, which saves x and statistics (module/layernorm.py). `norm` [1, h]: RMSNorm's weight;
// [2, h]: LayerNorm's weight and bias.
struct Norm {
  Tensor weights;
  double eps = 1e-5;
};
Tensor norm_linear(const Tensor& x, const Norm& norm, const Tensor& weight, const Tensor& bias, const Sharing& sharing);

// linear.py with parallel_mode column: gathered tokens times a part of the weight. Saves x.
Tensor gathered_linear(const Tensor& x, const Tensor& weight, const Sharing& sharing);

// linear.py with parallel_mode row: partial sums that are added up, or added and scattered. Saves x.
Tensor row_linear(const Tensor& x, const Tensor& weight, const Sharing& sharing);

// layers.py, LinearWithGradAccumulationAndAsyncCommunication, the output layer's and local modules': saves x. In
// `buffer` its full input is gathered in both passes (with sequence parallelism).
Tensor column_linear(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& buffer,
                     const Sharing& sharing);

// fused_bias_gelu.py, fused_bias_swiglu.py: save their input.
Tensor bias_activation(const Tensor& x, const Tensor& bias, bool gated);

// activations.py, squared_relu, compiled: saves its input. No bias comes with it here.
Tensor squared_relu(const Tensor& x);

// fused_bias_dropout.py, compiled: residual + dropout(x + bias). Saves the mask.
Tensor bias_dropout_add(const Tensor& x, const Tensor& bias, const Tensor& residual, double p);

// SplitAlongDim of [s, b, groups, (n + 2) d] in queries, keys and values: views; backward joins their gradients.
struct Heads {
  Tensor q, k, v;
};
Heads split_qkv(const Tensor& mixed, Dim q_width, Dim d);

// TE's rotary kernel: turns x [s, b, n, d] into a new tensor; saves no x. The tokens are those of pieces `rank` and
// 2 ranks - 1 - `rank` of a sequence (context parallelism).
Tensor fused_rope(const Tensor& x, const Tensor& frequencies, std::uint64_t rank, std::uint64_t ranks);

// apply_rotary_pos_emb without its kernel (--no-rope-fusion): step by step in x's dtype, of heads' first `angles` wide
// part. Saves cosines and sines.
Tensor plain_rope(const Tensor& x, const Tensor& angles);

// VocabParallelEmbedding: rows of this rank's part of the table, 0 for tokens of other ranks'.
Tensor vocab_parallel_rows(const Tensor& weight, const Tensor& tokens, TensorSeat seat);

// cross_entropy.py: logits [s, b, V/tp] in this rank's part of the vocabulary -> losses [s, b]; keeps an fp32 copy of
// the logits, in which probabilities and then the gradient take shape. `fused`: fused_cross_entropy.py, whose backward
// copies it once more.
Tensor vocab_parallel_cross_entropy(const Tensor& logits, const Tensor& labels, TensorSeat seat, bool fused);

// mappings.py, gather_from_sequence_parallel_region: of all ranks' tokens, whose gradient is added up and scattered.
Tensor gather_from_sequence(const Tensor& x, TensorSeat seat);

// mappings.py: to this rank's tokens and back; with `sums` of what the ranks have to add up, else of what all have.
Tensor scatter_to_sequence(const Tensor& x, TensorSeat seat, bool sums);

}  // namespace ledger::megatron
