#include "probe/device/kernels.h"

#include <algorithm>
#include <iterator>

namespace ledger::LEDGER_DEVICE {
namespace {

struct KernelRow {
  OpKind op;
  device::KernelFn kernel;  // nullptr: sizes only, no executor computes it
};

constexpr KernelRow kRows[] = {
    {OpKind::alibi_slopes, alibi_slopes},
    {OpKind::rsub_scalar, unary},
    {OpKind::baddbmm, baddbmm},
    {OpKind::load_parameter, load_parameter},
    {OpKind::load_buffer, load_buffer},
    {OpKind::load_constant, load_constant},
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
    {OpKind::compiled, nullptr},
    {OpKind::gather_copy_in, gather_copy_in},
    {OpKind::all_gather, all_gather},
    {OpKind::gather_copy_out, gather_copy_out},
    {OpKind::reduce_copy_in, reduce_copy_in},
    {OpKind::reduce_scatter, reduce_scatter},
    {OpKind::all_reduce, all_reduce},
    {OpKind::to_copy, copy},
    {OpKind::clone, copy},
    {OpKind::copy_into, copy},
    {OpKind::add, binary},
    {OpKind::add_inplace, binary},
    {OpKind::add_scalar, unary},
    {OpKind::mul, binary},
    {OpKind::mul_scalar, unary},
    {OpKind::mul_inplace, binary},
    {OpKind::div_scalar, unary},
    {OpKind::neg, unary},
    {OpKind::pow_scalar, unary},
    {OpKind::rsqrt, unary},
    {OpKind::reciprocal, unary},
    {OpKind::clamp_max, unary},
    {OpKind::cos, unary},
    {OpKind::sin, unary},
    {OpKind::silu, unary},
    {OpKind::silu_backward, binary},
    {OpKind::gelu, unary},
    {OpKind::gelu_backward, binary},
    {OpKind::relu, unary},
    {OpKind::threshold_backward, binary},
    {OpKind::tanh, unary},
    {OpKind::tanh_backward, binary},
    {OpKind::layer_norm, layer_norm},
    {OpKind::layer_norm_backward, layer_norm_backward},
    {OpKind::rms_norm, rms_norm},
    {OpKind::rms_norm_backward, rms_norm_backward},
    {OpKind::add_rms_norm, rms_norm},
    {OpKind::add_rms_norm_backward, rms_norm_backward},
    {OpKind::rope, rope},
    {OpKind::swiglu, binary},
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
    {OpKind::embedding, embedding},
    {OpKind::embedding_backward, embedding_backward},
    {OpKind::log_softmax, log_softmax},
    {OpKind::log_softmax_backward, log_softmax_backward},
    {OpKind::nll_loss, nll_loss},
    {OpKind::nll_loss_backward, nll_loss_backward},
    {OpKind::flash_attention, attention},
    {OpKind::flash_attention_backward, attention_backward},
    {OpKind::not_equal, of_integer},
    {OpKind::sort_true_first, sort_true_first},
    {OpKind::index_rows, index_rows},
    {OpKind::index_rows_backward, index_rows_backward},
    {OpKind::topk, topk},
    {OpKind::topk_backward, topk_backward},
    {OpKind::max_last, topk},
    {OpKind::gather, gather},
    {OpKind::gather_backward, topk_backward},
    {OpKind::scatter_value, scatter_value},
    {OpKind::scatter_source, scatter_source},
    {OpKind::floor, unary},
    {OpKind::log1p, unary},
    {OpKind::sinusoids, sinusoids},
    {OpKind::relative_buckets, relative_buckets},
    {OpKind::logical_not, unary},
    {OpKind::outside, unary},
    {OpKind::polar, polar},
    {OpKind::complex_mul, complex_mul},
    {OpKind::sort, sort},
    {OpKind::floor_divide, of_integer},
    {OpKind::histc, histc},
    {OpKind::at_least, of_integer},
    {OpKind::masked_fill, binary},
    {OpKind::index_put, index_put},
    {OpKind::grouped_mm, grouped_mm},
    {OpKind::div_inplace, binary},
    {OpKind::sigmoid, unary},
    {OpKind::sigmoid_backward, binary},
    {OpKind::bookkeeping, fill_zeros},
    {OpKind::liger_cross_entropy, liger_cross_entropy},
    {OpKind::cut_positions, cut_positions},
    {OpKind::cut_logsumexp, cut_logsumexp},
    {OpKind::cut_neg_dot, cut_neg_dot},
    {OpKind::cut_backward, cut_backward},
    {OpKind::cudnn_attention, cudnn_attention},
    {OpKind::cudnn_attention_backward, cudnn_attention_backward},
    {OpKind::copy_to_host, copy_to_host},
    {OpKind::copy_from_host, copy_from_host},
    {OpKind::sub, binary},
    {OpKind::div, binary},
    {OpKind::sqrt, unary},
    {OpKind::foreach_sqrt, unary},
    {OpKind::dropout, dropout},
    {OpKind::dropout_backward, binary},
    {OpKind::eye, eye},
    {OpKind::softmax, softmax},
    {OpKind::softmax_backward, softmax_backward},
    {OpKind::causal_mask, causal_mask},
    {OpKind::additive_mask, additive_mask},
    {OpKind::is_masked, unary},
    {OpKind::all, all},
    {OpKind::zero_masked_rows, binary},
    {OpKind::efficient_attention, attention},
    {OpKind::efficient_attention_backward, attention_backward},
    {OpKind::row_norm, row_norm},
    {OpKind::adamw_moments, adamw_moments},
    {OpKind::adamw_update, adamw_update},
    {OpKind::momentum_update, momentum_update},
    {OpKind::sgd_update, sgd_update},
    {OpKind::optimizer_math, nullptr},
    {OpKind::quantise, quantise},
    {OpKind::dequantise_absmax, dequantise_absmax},
    {OpKind::dequantise, dequantise},
    {OpKind::gemm_4bit, gemm_4bit},
    {OpKind::cache_quantise, nullptr},
    {OpKind::int8_linear, nullptr},
    {OpKind::vector_norm, vector_norm},
    {OpKind::adamw, adamw},
};

constexpr bool every_op_has_a_row() {
  for (std::size_t op = 0; op < kOpKinds; ++op) {
    const auto is_op = [op](const KernelRow& row) { return static_cast<std::size_t>(row.op) == op; };
    if (std::count_if(std::begin(kRows), std::end(kRows), is_op) != 1) return false;
  }
  return true;
}
static_assert(every_op_has_a_row(), "an operator of ops.h has no row in kRows, or two");

constexpr std::array<device::KernelFn, kOpKinds> by_op() {
  std::array<device::KernelFn, kOpKinds> table{};
  for (const KernelRow& row : kRows)
    table[static_cast<std::size_t>(row.op)] = row.kernel;
  return table;
}

}  // namespace

const std::array<device::KernelFn, kOpKinds> kKernels = by_op();

}  // namespace ledger::LEDGER_DEVICE
