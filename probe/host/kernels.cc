#include "probe/host/kernels.h"

#include <algorithm>
#include <cstddef>
#include <iterator>

namespace ledger::host {
namespace {

struct KernelRow {
  OpKind op;
  KernelFn kernel;
};

constexpr KernelRow kRows[] = {
    {OpKind::load_parameter, load_parameter},
    {OpKind::load_buffer, load_buffer},
    {OpKind::load_constant, load_constant},
    {OpKind::alibi_slopes, alibi_slopes},
    {OpKind::load_tokens, load_tokens},
    {OpKind::load_values, load_values},
    {OpKind::arange, arange},
    {OpKind::cumsum, cumsum},
    {OpKind::argmax, argmax},
    {OpKind::ones_like, fill_ones},
    {OpKind::zeros, fill_zeros},
    {OpKind::full, fill},
    {OpKind::zeros_like, fill_zeros},
    {OpKind::workspace, nothing},
    {OpKind::compiled, not_computed},
    {OpKind::gather_copy_in, gather_copy_in},
    {OpKind::all_gather, all_gather},
    {OpKind::gather_copy_out, gather_copy_out},
    {OpKind::reduce_copy_in, reduce_copy_in},
    {OpKind::reduce_scatter, reduce_scatter},
    {OpKind::all_reduce, all_reduce},
    {OpKind::send, send},
    {OpKind::all_to_all, all_to_all},
    {OpKind::receive, receive},
    {OpKind::to_copy, copy},
    {OpKind::clone, copy},
    {OpKind::copy_into, copy},
    {OpKind::add, add},
    {OpKind::add_inplace, add},
    {OpKind::add_scalar, add_scalar},
    {OpKind::mul, mul},
    {OpKind::mul_scalar, mul_scalar},
    {OpKind::mul_inplace, mul},
    {OpKind::div_scalar, div_scalar},
    {OpKind::neg, neg},
    {OpKind::rsub_scalar, rsub_scalar},
    {OpKind::pow_scalar, pow_scalar},
    {OpKind::rsqrt, rsqrt},
    {OpKind::reciprocal, reciprocal},
    {OpKind::clamp_max, clamp_max},
    {OpKind::cos, cos},
    {OpKind::sin, sin},
    {OpKind::silu, silu},
    {OpKind::silu_backward, silu_backward},
    {OpKind::gelu, gelu},
    {OpKind::gelu_backward, gelu_backward},
    {OpKind::relu, relu},
    {OpKind::threshold_backward, threshold_backward},
    {OpKind::tanh, tanh},
    {OpKind::tanh_backward, tanh_backward},
    {OpKind::layer_norm, layer_norm},
    {OpKind::layer_norm_backward, layer_norm_backward},
    {OpKind::rms_norm, rms_norm},
    {OpKind::rms_norm_backward, rms_norm_backward},
    {OpKind::add_rms_norm, rms_norm},
    {OpKind::add_rms_norm_backward, rms_norm_backward},
    {OpKind::rope, rope},
    {OpKind::swiglu, swiglu},
    {OpKind::swiglu_backward, swiglu_backward},
    {OpKind::cross_entropy_inplace, liger_cross_entropy},
    {OpKind::own_attention, attention},
    {OpKind::own_attention_backward, attention_backward},
    {OpKind::mean, mean},
    {OpKind::sum, sum},
    {OpKind::cat, cat},
    {OpKind::pad_right, pad_right},
    {OpKind::stack, stack},
    {OpKind::mm, mm},
    {OpKind::addmm, addmm},
    {OpKind::bmm, bmm},
    {OpKind::baddbmm, baddbmm},
    {OpKind::embedding, embedding},
    {OpKind::embedding_backward, embedding_backward},
    {OpKind::log_softmax, log_softmax},
    {OpKind::log_softmax_backward, log_softmax_backward},
    {OpKind::nll_loss, nll_loss},
    {OpKind::nll_loss_backward, nll_loss_backward},
    {OpKind::flash_attention, attention},
    {OpKind::flash_attention_backward, attention_backward},
    {OpKind::not_equal, not_equal},
    {OpKind::equal, not_equal},
    {OpKind::sort_true_first, sort_true_first},
    {OpKind::convolution, convolution},
    {OpKind::convolution_backward, convolution_backward},
    {OpKind::masked_scatter, masked_scatter},
    {OpKind::masked_select, masked_select},
    {OpKind::avg_pool, avg_pool},
    {OpKind::avg_pool_backward, avg_pool_backward},
    {OpKind::image_blocks, image_blocks},
    {OpKind::unfold, unfold},
    {OpKind::image_turns, image_turns},
    {OpKind::window_order, window_order},
    {OpKind::packed_attention, packed_attention},
    {OpKind::packed_attention_backward, packed_attention_backward},
    {OpKind::index_rows, index_rows},
    {OpKind::index_rows_backward, index_rows_backward},
    {OpKind::topk, topk},
    {OpKind::topk_backward, topk_backward},
    {OpKind::max_last, topk},
    {OpKind::gather, gather},
    {OpKind::gather_backward, topk_backward},
    {OpKind::scatter_value, scatter_value},
    {OpKind::scatter_source, scatter_source},
    {OpKind::floor, floor},
    {OpKind::log1p, log1p},
    {OpKind::exp, exp},
    {OpKind::log, log},
    {OpKind::log_sigmoid, log_sigmoid},
    {OpKind::logaddexp, logaddexp},
    {OpKind::logical_or, logical_or},
    {OpKind::amax, amax},
    {OpKind::less, less},
    {OpKind::sinusoids, sinusoids},
    {OpKind::relative_buckets, relative_buckets},
    {OpKind::logical_not, logical_not},
    {OpKind::outside, outside},
    {OpKind::polar, polar},
    {OpKind::complex_mul, complex_mul},
    {OpKind::sort, sort},
    {OpKind::floor_divide, floor_divide},
    {OpKind::remainder, remainder},
    {OpKind::experts_in_turn, experts_in_turn},
    {OpKind::histc, histc},
    {OpKind::at_least, at_least},
    {OpKind::masked_fill, masked_fill},
    {OpKind::index_put, index_put},
    {OpKind::grouped_mm, grouped_mm},
    {OpKind::div_inplace, div},
    {OpKind::sigmoid, sigmoid},
    {OpKind::sigmoid_backward, sigmoid_backward},
    {OpKind::bookkeeping, fill_zeros},
    {OpKind::liger_cross_entropy, liger_cross_entropy},
    {OpKind::cut_positions, cut_positions},
    {OpKind::cut_logsumexp, cut_logsumexp},
    {OpKind::cut_neg_dot, cut_neg_dot},
    {OpKind::cut_backward, cut_backward},
    {OpKind::cudnn_attention, attention},
    {OpKind::cudnn_attention_backward, attention_backward},
    {OpKind::copy_to_host, copy_to_host},
    {OpKind::copy_from_host, copy_from_host},
    {OpKind::sub, sub},
    {OpKind::div, div},
    {OpKind::sqrt, sqrt},
    {OpKind::foreach_sqrt, sqrt},
    {OpKind::dropout, dropout},
    {OpKind::dropout_backward, dropout_backward},
    {OpKind::eye, eye},
    {OpKind::softmax, softmax},
    {OpKind::softmax_backward, softmax_backward},
    {OpKind::causal_mask, causal_mask},
    {OpKind::additive_mask, additive_mask},
    {OpKind::is_masked, is_masked},
    {OpKind::all, all},
    {OpKind::zero_masked_rows, zero_masked_rows},
    {OpKind::efficient_attention, attention},
    {OpKind::efficient_attention_backward, attention_backward},
    {OpKind::row_norm, row_norm},
    {OpKind::adamw_moments, adamw_moments},
    {OpKind::adamw_update, adamw_update},
    {OpKind::momentum_update, momentum_update},
    {OpKind::sgd_update, sgd_update},
    {OpKind::optimizer_math, not_computed},
    {OpKind::quantise, quantise},
    {OpKind::dequantise_absmax, dequantise_absmax},
    {OpKind::dequantise, dequantise},
    {OpKind::gemm_4bit, gemm_4bit},
    {OpKind::cache_quantise, not_computed},
    {OpKind::int8_linear, not_computed},
    {OpKind::absolute, not_computed},
    {OpKind::largest, not_computed},
    {OpKind::float8, not_computed},
    {OpKind::vector_norm, vector_norm},
    {OpKind::adamw, adamw},
};

constexpr bool has_row(std::size_t op) {
  return std::any_of(std::begin(kRows), std::end(kRows),
                     [op](const KernelRow& row) { return static_cast<std::size_t>(row.op) == op; });
}

// Asked of the rows, not of the table: GCC with -fsanitize=undefined does not compare functions with nullptr at compile
// time (gcc.gnu.org/PR71962).
constexpr bool every_op_has_a_row() {
  for (std::size_t op = 0; op < kOpKinds; ++op) {
    if (!has_row(op)) return false;
  }
  return true;
}
static_assert(every_op_has_a_row(), "an operator of ops.h has no row in kRows");

constexpr std::array<KernelFn, kOpKinds> by_op() {
  std::array<KernelFn, kOpKinds> table{};
  for (const KernelRow& row : kRows)
    table[static_cast<std::size_t>(row.op)] = row.kernel;
  return table;
}

}  // namespace

constexpr std::array<KernelFn, kOpKinds> kKernels = by_op();

bool computes(OpKind op) {
  return kKernels[static_cast<std::size_t>(op)] != not_computed;
}

}  // namespace ledger::host
