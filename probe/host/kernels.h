// kernels.h - the host's kernels, one for each operator of ops.h; some serve several.
//
// What each computes stands in ops.h. All of them work on any strides.
#pragma once

#include <array>

#include "core/trace/ops.h"
#include "probe/host/host_view.h"

namespace ledger::host {

// kernels_create.cc
void load_parameter(KernelCall& call);
void load_buffer(KernelCall& call);
void load_constant(KernelCall& call);
void alibi_slopes(KernelCall& call);
void sinusoids(KernelCall& call);
void relative_buckets(KernelCall& call);
void load_tokens(KernelCall& call);
void load_values(KernelCall& call);
void eye(KernelCall& call);
void arange(KernelCall& call);
void fill_ones(KernelCall& call);
void fill_zeros(KernelCall& call);
void fill(KernelCall& call);
void nothing(KernelCall& call);
void not_computed(KernelCall& call);  // marks operators that the host has no kernel for; never called, see computes()

// kernels_transfer.cc
void copy_to_host(KernelCall& call);
void copy_from_host(KernelCall& call);

// kernels_collective.cc
void gather_copy_in(KernelCall& call);
void all_gather(KernelCall& call);
void all_to_all(KernelCall& call);
void gather_copy_out(KernelCall& call);
void reduce_copy_in(KernelCall& call);
void reduce_scatter(KernelCall& call);
void all_reduce(KernelCall& call);
void send(KernelCall& call);
void receive(KernelCall& call);

// kernels_elementwise.cc
void copy(KernelCall& call);
void add(KernelCall& call);
void add_scalar(KernelCall& call);
void mul(KernelCall& call);
void mul_scalar(KernelCall& call);
void div_scalar(KernelCall& call);
void sub(KernelCall& call);
void div(KernelCall& call);
void neg(KernelCall& call);
void rsub_scalar(KernelCall& call);
void pow_scalar(KernelCall& call);
void sqrt(KernelCall& call);
void rsqrt(KernelCall& call);
void reciprocal(KernelCall& call);
void clamp_max(KernelCall& call);
void outside(KernelCall& call);
void logical_not(KernelCall& call);
void floor(KernelCall& call);
void log1p(KernelCall& call);
void exp(KernelCall& call);
void log(KernelCall& call);
void log_sigmoid(KernelCall& call);
void logaddexp(KernelCall& call);
void logical_or(KernelCall& call);
void cos(KernelCall& call);
void sin(KernelCall& call);
void silu(KernelCall& call);
void silu_backward(KernelCall& call);
void swiglu(KernelCall& call);
void gelu(KernelCall& call);
void gelu_backward(KernelCall& call);
void relu(KernelCall& call);
void threshold_backward(KernelCall& call);
void tanh(KernelCall& call);
void tanh_backward(KernelCall& call);
void sigmoid(KernelCall& call);
void sigmoid_backward(KernelCall& call);
void masked_fill(KernelCall& call);
void dropout_backward(KernelCall& call);
void is_masked(KernelCall& call);
void zero_masked_rows(KernelCall& call);

// kernels_layer_norm.cc
void layer_norm(KernelCall& call);
void layer_norm_backward(KernelCall& call);
void rms_norm(KernelCall& call);
void rms_norm_backward(KernelCall& call);

// kernels_fused.cc
void rope(KernelCall& call);
void swiglu_backward(KernelCall& call);

// kernels_dropout.cc
void dropout(KernelCall& call);

// kernels_image.cc
void convolution(KernelCall& call);
void convolution_backward(KernelCall& call);
void masked_scatter(KernelCall& call);
void masked_select(KernelCall& call);
void avg_pool(KernelCall& call);
void avg_pool_backward(KernelCall& call);
void image_blocks(KernelCall& call);
void unfold(KernelCall& call);
void image_turns(KernelCall& call);
void window_order(KernelCall& call);
void packed_attention(KernelCall& call);
void packed_attention_backward(KernelCall& call);

// kernels_mask.cc
void causal_mask(KernelCall& call);
void additive_mask(KernelCall& call);
void all(KernelCall& call);

// kernels_reduce.cc
void mean(KernelCall& call);
void sum(KernelCall& call);
void vector_norm(KernelCall& call);
void row_norm(KernelCall& call);
void cumsum(KernelCall& call);
void argmax(KernelCall& call);
void amax(KernelCall& call);

// kernels_shape.cc
void cat(KernelCall& call);
void pad_right(KernelCall& call);
void stack(KernelCall& call);
void embedding(KernelCall& call);
void embedding_backward(KernelCall& call);

// kernels_matrix.cc
void mm(KernelCall& call);
void addmm(KernelCall& call);
void bmm(KernelCall& call);
void baddbmm(KernelCall& call);

// kernels_softmax.cc
void softmax(KernelCall& call);
void softmax_backward(KernelCall& call);
void log_softmax(KernelCall& call);
void log_softmax_backward(KernelCall& call);

// kernels_loss.cc
void nll_loss(KernelCall& call);
void nll_loss_backward(KernelCall& call);

void liger_cross_entropy(KernelCall& call);

// kernels_cut.cc
void cut_positions(KernelCall& call);
void cut_logsumexp(KernelCall& call);
void cut_neg_dot(KernelCall& call);
void cut_backward(KernelCall& call);

// kernels_index.cc
void not_equal(KernelCall& call);
void sort_true_first(KernelCall& call);
void index_rows(KernelCall& call);
void index_rows_backward(KernelCall& call);
void index_put(KernelCall& call);

// kernels_routing.cc
void topk(KernelCall& call);
void topk_backward(KernelCall& call);
void gather(KernelCall& call);
void scatter_value(KernelCall& call);
void scatter_source(KernelCall& call);
void sort(KernelCall& call);
void floor_divide(KernelCall& call);
void remainder(KernelCall& call);
void experts_in_turn(KernelCall& call);
void at_least(KernelCall& call);
void less(KernelCall& call);
void histc(KernelCall& call);
void grouped_mm(KernelCall& call);

// kernels_complex.cc
void polar(KernelCall& call);
void complex_mul(KernelCall& call);

// kernels_attention.cc
void attention(KernelCall& call);
void attention_backward(KernelCall& call);

// kernels_optimizer.cc
void adamw(KernelCall& call);
void adamw_moments(KernelCall& call);
void adamw_update(KernelCall& call);
void momentum_update(KernelCall& call);
void sgd_update(KernelCall& call);

// kernels_quant.cc
void quantise(KernelCall& call);
void dequantise_absmax(KernelCall& call);
void dequantise(KernelCall& call);
void gemm_4bit(KernelCall& call);

// Copies elements of one dtype bit by bit; `from` broadcasts to `to`.
void move_elements(const HostView& to, const HostView& from);

// The kernel of every operator, in the order of OpKind.
extern const std::array<KernelFn, kOpKinds> kKernels;

// False for operators that only have a shape here.
bool computes(OpKind op);

}  // namespace ledger::host
