// kernels.h - a device's kernels, one for each operator of ops.h; some serve several. What each computes stands in
// ops.h; all of them work on any strides.
#pragma once

#include <array>

#include "core/trace/ops.h"
#include "probe/device/on_device.h"

namespace ledger::LEDGER_DEVICE {

// create.cc
void load_parameter(Call& call);
void load_buffer(Call& call);
void alibi_slopes(Call& call);
void sinusoids(Call& call);
void relative_buckets(Call& call);
void load_constant(Call& call);
void load_tokens(Call& call);
void load_values(Call& call);
void eye(Call& call);
void arange(Call& call);
void experts_in_turn(Call& call);
void fill_ones(Call& call);
void fill_zeros(Call& call);
void fill(Call& call);
void causal_mask(Call& call);
void nothing(Call& call);

// collective.cc
void gather_copy_in(Call& call);
void all_gather(Call& call);
void all_to_all(Call& call);
void gather_copy_out(Call& call);
void reduce_copy_in(Call& call);
void reduce_scatter(Call& call);
void all_reduce(Call& call);
void receive(Call& call);

// elementwise.cc
void copy(Call& call);
void unary(Call& call);
void binary(Call& call);
void dropout(Call& call);
void additive_mask(Call& call);
void of_integer(Call& call);

// move.cc
void cat(Call& call);
void pad_right(Call& call);
void stack(Call& call);
void embedding(Call& call);
void embedding_backward(Call& call);
void index_rows(Call& call);
void index_rows_backward(Call& call);
void index_put(Call& call);
void sort_true_first(Call& call);
void cut_positions(Call& call);
void copy_to_host(Call& call);
void copy_from_host(Call& call);

// image.cc
void convolution(Call& call);
void convolution_backward(Call& call);
void masked_scatter(Call& call);
void masked_select(Call& call);
void avg_pool(Call& call);
void avg_pool_backward(Call& call);
void image_blocks(Call& call);
void unfold(Call& call);
void image_turns(Call& call);
void window_order(Call& call);
void packed_attention(Call& call);
void packed_attention_backward(Call& call);

// routing.cc
void topk(Call& call);
void topk_backward(Call& call);
void gather(Call& call);
void scatter_value(Call& call);
void scatter_source(Call& call);
void sort(Call& call);
void histc(Call& call);
void grouped_mm(Call& call);

// reduce.cc
void mean(Call& call);
void sum(Call& call);
void vector_norm(Call& call);
void row_norm(Call& call);
void cumsum(Call& call);
void argmax(Call& call);
void amax(Call& call);
void all(Call& call);

// rows.cc
void softmax(Call& call);
void softmax_backward(Call& call);
void log_softmax(Call& call);
void log_softmax_backward(Call& call);
void layer_norm(Call& call);
void layer_norm_backward(Call& call);
void rms_norm(Call& call);
void rms_norm_backward(Call& call);

// fused.cc
void rope(Call& call);
void swiglu_backward(Call& call);

// loss.cc
void nll_loss(Call& call);
void nll_loss_backward(Call& call);
void liger_cross_entropy(Call& call);

// matrix.cc
void mm(Call& call);
void addmm(Call& call);
void bmm(Call& call);
void baddbmm(Call& call);
void gemm_4bit(Call& call);

// complex.cc
void polar(Call& call);
void complex_mul(Call& call);

// attention.cc, attention_backward.cc
void attention(Call& call);
void attention_backward(Call& call);
void cudnn_attention(Call& call);
void cudnn_attention_backward(Call& call);

// cut.cc
void cut_logsumexp(Call& call);
void cut_neg_dot(Call& call);
void cut_backward(Call& call);

// optimizer.cc
void adamw(Call& call);
void adamw_moments(Call& call);
void adamw_update(Call& call);
void momentum_update(Call& call);
void sgd_update(Call& call);

// quant.cc
void quantise(Call& call);
void dequantise_absmax(Call& call);
void dequantise(Call& call);

// The kernel of every operator, in the order of OpKind; nullptr where it only has a shape (as on the host).
extern const std::array<device::KernelFn, kOpKinds> kKernels;

}  // namespace ledger::LEDGER_DEVICE
