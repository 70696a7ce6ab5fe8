// The tape's backward rules, executed: for each differentiable operator and for compositions, the gradients that the
// traced backward pass computes in fp64 against central differences of the traced forward pass.
#include <gtest/gtest.h>

#include <cmath>

#include "core/models/attention.h"
#include "core/models/bloom.h"
#include "core/models/feed_forward.h"
#include "core/trace/fused_ops.h"
#include "core/trace/operators.h"
#include "probe/host/run_host.h"
#include "tests/probe/slope.h"

namespace ledger {
namespace {

constexpr Dim kB{2}, kS{5}, kH{8}, kHalf{4}, kOne{1}, kVocab{7}, kHeads{4}, kKvHeads{2};

// What a program computes with: trainable tensors of some shapes, and token ids.
struct Material {
  Tensor x;       // [2,5,8]
  Tensor y;       // [2,5,8]
  Tensor vector;  // [8]
  Tensor column;  // [2,5,1]
  Tensor matrix;  // [8,8]
  Tensor table;   // [7,8]
  Tensor ids;     // [2,5], not differentiable
};

struct Program {
  const char* name;
  Tensor (*result)(const Material&);
  double tolerance = 1e-6;  // relative; where all is fp64, finite differences are good for some 1e-9
};

void PrintTo(const Program& program, std::ostream* out) {
  *out << program.name;
}

Tensor rotate_half(const Tensor& x) {
  return cat(neg(slice(x, -1, 4, kHalf)), slice(x, -1, 0, kHalf), -1);
}

Tensor rms_norm(const Tensor& x, const Tensor& weight) {
  return weight * (x * rsqrt(mean_last(pow(x, 2)) + 1e-3));
}

Tensor heads(const Tensor& x, Dim count) {
  return transpose(reshape(x, {kB, kS, count, {2}}), 1, 2);
}

// Something to transpose whose gradient reaches the parameters in their own order.
Tensor product(const Material& m) {
  return linear(m.x, m.matrix, Tensor());
}

// Attention of [b,h,s,d] made of the parameters, grouped or not; large enough that probabilities differ.
Tensor attention(const Material& m, Attention kind, Dim kv_heads) {
  const Tensor kv = kv_heads.size == kHeads.size ? m.y * 20.0 : slice(m.y, -1, 0, kHalf) * 20.0;
  const Tensor q = heads(m.x * 20.0, kHeads), k = heads(kv, kv_heads), v = heads(kv * m.column, kv_heads);
  return attend(kind, q, k, v, make_mask(kind, m.x.tape(), {.s = kS, .keys = kS}, DType::f64)).output;
}

Tensor bias_of(const Material& m) {
  return slice(slice(reshape(m.y, {{80}}), 0, 0, {8}), 0, 0, kH);
}

Tensor first_half(const Material& m) {
  return slice(m.y, -1, 0, kHalf);
}

Tensor block(const Material& m, const Tensor& x) {
  return linear(silu(rms_norm(x, m.vector) * m.y), m.matrix, Tensor());
}

// A region whose parameters nothing else uses, as decoder layers are.
Tensor reentrant(const Material& m, const Tensor& input) {
  const auto region = [m](const Tensor& x) { return linear(silu(rms_norm(x, m.vector)), m.matrix, Tensor()); };
  return m.x.tape().checkpoint_reentrant(region, input);
}

Tensor token_rows(const Tensor& x) {
  return reshape(x, {{10}, kH});
}

// Rows of x in groups of `size`, each by its part of the matrix.
Tensor grouped(const Material& m, std::uint64_t size, Dim groups) {
  const Tensor ids = to(floor_divide(arange(m.x.tape(), {10}), size), DType::i32);
  const Tensor ends = cumsum_last(histogram(ids, groups));
  const Tensor weights = reshape(m.matrix, {groups, {8 / groups.size}, kH});
  return grouped_mm(token_rows(product(m)), transpose(weights, 1, 2), ends);
}

constexpr double kFp32Inside = 1e-3;  // eager attention's softmax is in fp32, whatever the rest is

// [2,4,5,2] as queries on [2,4,2,5] as keys, transposed or not.
Tensor scores(const Material& m) {
  return matmul(heads(m.x, kHeads), transpose(heads(m.y, kHeads), 2, 3));
}

// Each head [2,1,5,2] with a norm of its own weight.
Tensor normed_heads(const Material& m) {
  const std::vector<Tensor> parts = split_each(heads(product(m), kHeads), 1);
  std::vector<Tensor> normed;
  for (std::size_t i = 0; i < parts.size(); ++i)
    normed.push_back(layer_norm(parts[i], slice(m.vector, 0, 2 * i, {2}), Tensor(), 1e-3));
  return cat_all(normed, 1, kHeads);
}

// Images [2,2,4,6] through eight filters of 2 by 2.
Tensor patches(const Material& m, const Tensor& bias) {
  const Tensor pixels = to(arange(m.x.tape(), {96}), DType::f64) * 0.02;
  return convolution(reshape(pixels, {kB, {2}, {4}, {6}}), reshape(m.matrix, {kH, {2}, {2}, {2}}), bias);
}

// Two images of five tokens in a row, in windows of two and one.
constexpr WindowGrid kRagged{.rows = 1, .columns = 5, .side = 2, .unit = 1};

// Both sequences one after the other, [1,4,10,2].
Tensor packed(const Tensor& x) {
  return unsqueeze(transpose(reshape(x, {{10}, kHeads, {2}}), 0, 1), 0);
}

const Program kPrograms[] = {
    {"add", [](const Material& m) { return m.x + m.y; }},
    {"add_to_itself", [](const Material& m) { return m.x + m.x; }},
    {"add_broadcast", [](const Material& m) { return m.x + m.vector; }},
    {"add_broadcast_column", [](const Material& m) { return m.column + m.x; }},
    {"mul", [](const Material& m) { return m.x * m.y; }},
    {"mul_by_itself", [](const Material& m) { return m.x * m.x; }},
    {"mul_broadcast", [](const Material& m) { return m.vector * m.x; }},
    {"mul_broadcast_column", [](const Material& m) { return m.x * m.column; }},
    {"sub", [](const Material& m) { return sub(m.x, m.y); }},
    {"sub_broadcast", [](const Material& m) { return sub(m.vector, m.x); }},
    {"div", [](const Material& m) { return div(m.x, m.y + 1.0); }},
    {"div_broadcast", [](const Material& m) { return div(m.column, m.vector + 1.0); }},
    {"div_by_itself", [](const Material& m) { return div(m.x, m.x * m.x + 1.0); }},
    {"scalars", [](const Material& m) { return neg(m.x * 3.0 + 2.0) / 7.0; }},
    {"pow", [](const Material& m) { return pow(m.x + 1.0, 2.5); }},
    {"square", [](const Material& m) { return pow(m.x, 2); }},
    {"rsqrt", [](const Material& m) { return rsqrt(m.x + 1.0); }},
    {"silu", [](const Material& m) { return silu(m.x * 20.0); }},
    {"gelu", [](const Material& m) { return gelu(m.x * 20.0, false); }},
    {"gelu_tanh", [](const Material& m) { return gelu(m.x * 20.0, true); }},
    {"gelu_new", [](const Material& m) { return activate(Act::gelu_new, m.x * 20.0); }},
    {"relu", [](const Material& m) { return relu(m.x * 20.0); }},
    {"tanh", [](const Material& m) { return tanh(m.x * 20.0); }},
    {"layer_norm", [](const Material& m) { return layer_norm(m.x, m.vector, Tensor(), 1e-3); }},
    {"layer_norm_with_bias", [](const Material& m) { return layer_norm(m.x * m.y, m.vector, bias_of(m), 1e-3); }},
    {"layer_norm_bare", [](const Material& m) { return layer_norm(m.x, Tensor(), Tensor(), 1e-3) * m.y; }},
    {"layer_norm_of_transposed",
     [](const Material& m) { return layer_norm(transpose(product(m), 0, 1), m.vector, bias_of(m), 1e-3); }},
    {"split_each", normed_heads},
    {"cat_all_of_some",
     [](const Material& m) {
       const std::vector<Tensor> parts = {m.x, product(m), ones_like(m.y), m.x};
       return silu(cat_all(parts, 1, {20})) * 3.0;
     }},
    {"embedding_of_permuted",
     [](const Material& m) { return transpose(embedding(m.table, m.ids), 0, 1) * transpose(m.x, 0, 1); }},
    {"fused_rms_norm", [](const Material& m) { return fused_rms_norm(m.x * m.y, m.vector, 1e-3); }},
    {"fused_rms_norm_of_transposed",
     [](const Material& m) { return fused_rms_norm(transpose(product(m), 0, 1), m.vector, 1e-3); }},
    {"conv1d", [](const Material& m) { return conv1d(m.x, m.matrix, m.vector); }},
    {"split",
     [](const Material& m) {
       const Parts parts = split(product(m), -1, kHalf, 2);
       return silu(parts[0]) * parts[1];
     }},
    {"split_of_three_with_one_unused",
     [](const Material& m) {
       const Parts parts = split(cat(product(m), first_half(m), -1), -1, kHalf, 3);
       return parts[0] * parts[2];
     }},
    {"every_other",
     [](const Material& m) {
       const Tensor x = product(m);
       return every_other(x, 0, kHalf) * every_other(x, 1, kHalf);
     }},
    {"mean_last", [](const Material& m) { return mean_last(m.x); }},
    {"mean_all", [](const Material& m) { return mean_all(m.x); }},
    {"cat", [](const Material& m) { return cat(m.x, m.y, 1); }},
    {"slice", [](const Material& m) { return slice(m.x, 1, 2, {2}); }},
    {"rotate_half", [](const Material& m) { return m.x * m.vector + rotate_half(m.x) * m.y; }},
    {"transpose", [](const Material& m) { return transpose(product(m), 1, 2); }},
    {"reshape_of_transposed",
     [](const Material& m) {
       return reshape(transpose(product(m), 0, 1), {kS, {16}});
     }},
    {"clone", [](const Material& m) { return clone(transpose(product(m), 0, 2)); }},
    {"linear", [](const Material& m) { return linear(m.x, m.matrix, Tensor()); }},
    {"linear_with_bias", [](const Material& m) { return linear(m.x, m.matrix, m.vector); }},
    {"linear_twice",
     [](const Material& m) { return linear(silu(linear(m.x, m.matrix, m.vector)), m.matrix, Tensor()); }},
    {"mm", [](const Material& m) { return mm(m.table, m.matrix); }},
    {"bmm", [](const Material& m) { return bmm(m.x, transpose(m.y, 1, 2)); }},
    {"bmm_of_itself", [](const Material& m) { return bmm(transpose(m.x, 1, 2), m.x); }},
    {"matmul", scores},
    {"matmul_twice", [](const Material& m) { return matmul(scores(m), heads(m.x, kHeads)); }},
    {"embedding", [](const Material& m) { return embedding(m.table, m.ids); }},
    {"embedding_tied", [](const Material& m) { return linear(embedding(m.table, m.ids) + m.x, m.table, Tensor()); }},
    {"rms_norm", [](const Material& m) { return rms_norm(m.x, m.vector); }},
    {"softmax", [](const Material& m) { return softmax(m.x * 10.0, DType::f64); }},
    {"softmax_of_transposed",
     [](const Material& m) { return softmax(transpose(product(m), 1, 2) * 10.0, DType::f64); }},
    {"safe_softmax",
     [](const Material& m) {
       const Tensor mask = additive_mask(causal_mask(m.x.tape(), {kS, kS}), DType::f64, true);
       return safe_softmax(scores(m) * 10.0 + mask);
     }},
    {"dropout", [](const Material& m) { return dropout(m.x * m.y, 0.4); }},
    {"dropout_of_transposed", [](const Material& m) { return dropout(transpose(product(m), 0, 1), 0.4); }},
    {"log_softmax", [](const Material& m) { return log_softmax(m.x * 10.0); }},
    {"cross_entropy",
     [](const Material& m) {
       const Tensor logits = linear(m.x, m.table, Tensor()) * 10.0;
       return nll_loss(log_softmax(reshape(logits, {{10}, kVocab})), reshape(m.ids, {{10}}));
     }},
    {"attention",
     [](const Material& m) {
       return flash_attention(heads(m.x * 20.0, kHeads), heads(m.y * 20.0, kHeads), heads(m.x + m.y, kHeads));
     }},
    {"attention_grouped",
     [](const Material& m) {
       const Tensor kv = slice(m.y, -1, 0, kHalf) * 20.0;
       const Tensor k = heads(kv, kKvHeads), v = heads(kv * m.column, kKvHeads);
       return flash_attention(heads(m.x * 20.0, kHeads), k, v);
     }},
    {"attention_of_a_fused_projection",
     [](const Material& m) {
       const Tensor fused = cat(cat(m.x * 20.0, m.y * 20.0, -1), m.x + m.y, -1);
       const auto part = [&](std::uint64_t i) { return heads(slice(fused, -1, 8 * i, kH), kHeads); };
       return flash_attention(part(0), part(1), part(2));
     }},
    {"attention_with_a_scale",
     [](const Material& m) {
       return flash_attention(heads(m.x * 20.0, kHeads), heads(m.y * 20.0, kHeads), heads(m.x + m.y, kHeads), 0.3);
     }},
    {"efficient_attention", [](const Material& m) { return attention(m, Attention::efficient, kHeads); }},
    {"math_attention", [](const Material& m) { return attention(m, Attention::math, kHeads); }},
    {"math_attention_grouped", [](const Material& m) { return attention(m, Attention::math, kKvHeads); }},
    {"eager_attention", [](const Material& m) { return attention(m, Attention::eager, kHeads); }, kFp32Inside},
    {"eager_attention_grouped", [](const Material& m) { return attention(m, Attention::eager, kKvHeads); },
     kFp32Inside},
    {"parameter_used_transposed", [](const Material& m) { return transpose(m.matrix, 0, 1) * m.vector; }},
    {"baddbmm",
     [](const Material& m) {
       const Tensor added = full(m.x.tape(), {kB, kOne, kS}, 0.5, DType::f64);
       return baddbmm(added, m.x, transpose(m.y, 1, 2), 0.3);
     }},
    {"bloom_gelu", [](const Material& m) { return bloom_gelu(m.x * 20.0); }, 1e-3},  // its constants have six digits
    {"linear_by_matmul", [](const Material& m) { return linear_by_matmul(m.x, m.matrix, m.vector); }},
    {"take",
     [](const Material& m) {
       const Tensor x = product(m);
       return take(x, 1, 3) * take(x, 1, 0);
     }},
    {"add_onto", [](const Material& m) { return add_onto(m.x * 3.0, product(m)); }},
    {"sigmoid", [](const Material& m) { return sigmoid(m.x * 20.0); }},
    {"sum_over", [](const Material& m) { return sum_over(m.x * m.y, 1, false) * m.vector; }},
    {"sum_over_kept", [](const Material& m) { return m.x * sum_over(m.y, -1, true); }},
    {"div_inplace", [](const Material& m) { return div_inplace(m.x * 3.0, m.y + 1.0); }},
    {"div_inplace_by_its_sum",
     [](const Material& m) {
       const Tensor x = m.x * m.x + 1.0;
       const Tensor total = sum_over(x, -1, true);
       return div_inplace(x, total);
     }},
    {"masked_fill_inplace",
     [](const Material& m) { return masked_fill_inplace(m.x * m.y, at_least(arange(m.x.tape(), kH), 5), 0); }},
    {"topk",
     [](const Material& m) {
       const TopK top = topk(token_rows(product(m)), {3});
       return top.values * top.values;
     }},
    {"index_rows_of_a_vector",
     [](const Material& m) { return index_rows(m.vector, floor_divide(arange(m.x.tape(), {8}), 3)) * m.x; }},
    {"clamp_max", [](const Material& m) { return clamp_max(m.x * 20.0, 0.1); }},
    {"clamp", [](const Material& m) { return clamp(m.x * 20.0, 0.3) * m.y; }},
    {"max_last", [](const Material& m) { return sub(m.x, max_last(m.x * m.y).values); }},
    {"split_in_two",
     [](const Material& m) {
       const Parts parts = split(m.x * m.y, -1, Dim{3}, Dim{5});
       return cat(parts[1], parts[0] * 2.0, -1);
     }},
    {"gather",
     [](const Material& m) {
       const Tensor rows = token_rows(m.x * m.y);
       return gather(rows, topk(rows, {3}).places);
     }},
    {"attention_both_ways",
     [](const Material& m) {
       const Tensor q = heads(m.x * 20.0, kHeads), k = heads(m.y * 20.0, kHeads), v = heads(m.y * m.column, kHeads);
       return attend(Attention::flash, q, k, v, Tensor(), {.causal = false}).output;
     }},
    {"eager_attention_both_ways",
     [](const Material& m) {
       const Tensor q = heads(m.x * 20.0, kHeads), k = heads(m.y * 20.0, kHeads), v = heads(m.y * m.column, kHeads);
       return attend(Attention::eager, q, k, v, Tensor(), {.fp32_softmax = false, .causal = false}).output;
     }},
    {"scatter",
     [](const Material& m) {
       const Tensor rows = token_rows(m.x * m.y);
       const TopK best = topk(rows, {3});
       return scatter_inplace(zeros(m.x.tape(), rows.shape(), DType::f64), best.places, best.values * 2.0);
     }},
    {"pad_right", [](const Material& m) { return pad_right(m.x * m.y, {11}, 1); }},
    {"efficient_attention_of_narrower_values",
     [](const Material& m) {
       const Tensor q = heads(m.x * 20.0, kHeads), k = heads(m.y * 20.0, kHeads);
       const Tensor v = slice(heads(m.y * m.column, kHeads), -1, 0, kOne);
       return efficient_attention(q, k, v);
     }},
    {"masked_fill",
     [](const Material& m) {
       const Tensor causal = causal_mask(m.x.tape(), {kS, kH});
       return masked_fill(m.x * m.y, logical_not(causal), -2.5);
     }},
    {"complex_mul",
     [](const Material& m) {
       const Tensor angles = reshape(to(arange(m.x.tape(), {20}), DType::f64), {{1}, kS, kHalf});
       return complex_mul(m.x * m.y, polar(angles));
     }},
    {"attention_with_sinks",
     [](const Material& m) {
       const Tensor q = heads(m.x * 20.0, kHeads), k = heads(m.y * 20.0, kHeads), v = heads(m.y * m.column, kHeads);
       const Tensor mask = make_mask(Attention::eager, m.x.tape(), {.s = kS, .keys = kS}, DType::f64);
       return attend_with_sinks(q, k, v, mask, slice(m.vector, 0, 0, kHeads), {}).output;
     }},
    {"convolution", [](const Material& m) { return patches(m, m.vector); }},
    {"convolution_of_patches_in_a_row",
     [](const Material& m) {
       const Tensor features = reshape(patches(m, Tensor()), {kB, kH, {6}});
       return cat(m.column, transpose(slice(features, 1, 0, kOne), 1, 2), 1);
     }},
    {"masked_scatter",
     [](const Material& m) {
       const Tensor mask = reshape(at_least(arange(m.x.tape(), {10}), 4), {kB, kS, kOne});
       return masked_scatter(m.x * m.vector, mask, slice(token_rows(m.y * m.y), 0, 0, {6}));
     }},
    {"avg_pool", [](const Material& m) { return avg_pool(reshape(product(m), {kB, {2}, {4}, kS}), 2); }},
    {"split_all",
     [](const Material& m) {
       const std::array<Dim, 3> lengths{kOne, {3}, kOne};
       const std::vector<Tensor> parts = split_all(product(m), 1, lengths);
       const std::vector<Tensor> other_way{parts[2], parts[1] * parts[1], parts[0]};
       return cat_all(other_way, 1, kS);
     }},
    {"packed_attention",
     [](const Material& m) {
       const Tensor k = packed(m.y * 20.0), q = packed(m.x * 20.0), v = packed(m.y * m.column);
       const Tensor ends = bookkeeping(m.x.tape(), {{7}}, DType::i32);
       return packed_attention(q, k, v, ends, kRagged);
     }},
    {"tokens_of_a_window_together",
     [](const Material& m) {
       Tape& tape = m.x.tape();
       Tensor x = token_rows(m.x * m.y);
       x = index_rows(x, window_order(tape, {10}, kRagged, WindowOrder::together));
       x = x * reshape(to(arange(tape, {80}), DType::f64), {{10}, kH});
       return index_rows(x, window_order(tape, {10}, kRagged, WindowOrder::back));
     }},
    {"join_images", [](const Material& m) { return join_images(m.x * m.y) * m.vector; }},
    {"grouped_mm", [](const Material& m) { return grouped(m, 6, {2}); }},
    {"grouped_mm_with_empty_groups", [](const Material& m) { return grouped(m, 20, {4}); }},
    {"add_rms_norm",
     [](const Material& m) {
       const Normed normed = add_rms_norm(m.x * m.y, m.y * 3.0, m.vector, 1e-3);
       return normed.y * normed.sum;
     }},
    {"add_rms_norm_whose_sum_ends",
     [](const Material& m) { return add_rms_norm(m.x * m.y, product(m), m.vector, 1e-3).y; }},
    {"add_rms_norm_whose_norm_ends",
     [](const Material& m) { return add_rms_norm(m.x * m.y, product(m), m.vector, 1e-3).sum * m.y; }},
    {"add_rms_norm_of_nothing_added",
     [](const Material& m) {
       const Normed normed = add_rms_norm(product(m), Tensor(), m.vector, 1e-3);
       return normed.sum + normed.y * m.y;
     }},
    {"remade",
     [](const Material& m) {
       const Normed normed = add_rms_norm(m.x * m.y, product(m), m.vector, 1e-3);
       m.x.tape().remake(normed.y, [sum = m.x.tape().detach(normed.sum), weight = m.vector] {
         return add_rms_norm(sum, Tensor(), weight, 1e-3).y;
       });
       const Tensor once = linear(normed.y, m.matrix, Tensor());
       const Tensor again = transpose(linear(transpose(normed.y, 0, 1), m.matrix, m.vector), 0, 1);
       return once + again * 2.0 + normed.sum;
     }},
    {"rope_inplace",
     [](const Material& m) {
       const Tensor x = reshape(m.x * m.y, {kB, kS, {2}, kHalf});
       const Tensor turned = rope_inplace(x, to(arange(m.x.tape(), {2}), DType::f32) + 0.5);
       return turned * reshape(m.y, x.shape());
     }},
    {"swiglu", [](const Material& m) { return swiglu(m.x * 20.0, product(m)) * m.y; }},
    {"swiglu_of_what_others_read",
     [](const Material& m) {
       const Tensor gate = m.x * 20.0, up = product(m);
       const Tensor others = silu(gate) * up;
       return swiglu(gate, up) + others;
     }},
    {"cross_entropy_inplace",
     [](const Material& m) {
       const Tensor logits = linear(m.x, m.table, Tensor()) * 10.0;
       return cross_entropy_inplace(reshape(logits, {{10}, kVocab}), reshape(m.ids, {{10}})) * 3.0;
     }},
    {"own_attention",
     [](const Material& m) {
       return own_attention(heads(m.x * 20.0, kHeads), heads(m.y * 20.0, kHeads), heads(m.x + m.y, kHeads));
     }},
    {"own_attention_grouped",
     [](const Material& m) {
       const Tensor kv = slice(m.y, -1, 0, kHalf) * 20.0;
       return own_attention(heads(m.x * 20.0, kHeads), heads(kv, kKvHeads), heads(kv * m.column, kKvHeads));
     }},
    {"residual_block",
     [](const Material& m) {
       return m.x + linear(silu(linear(rms_norm(m.x, m.vector), m.matrix, Tensor())) * m.y, m.matrix, Tensor());
     }},
    {"checkpoint", [](const Material& m) { return m.x.tape().checkpoint([m] { return block(m, m.x); }) + m.x; }},
    {"checkpoint_with_dropout",
     [](const Material& m) {
       return m.x.tape().checkpoint([m] { return dropout(block(m, dropout(m.x * m.y, 0.3)), 0.4) * m.y; }) + m.x;
     }},
    {"checkpoint_reentrant", [](const Material& m) { return reentrant(m, m.x * m.y) + m.x; }},
    {"checkpoint_reentrant_sharing_its_leaves",
     [](const Material& m) {
       return m.x.tape().checkpoint_reentrant([m](const Tensor& x) { return block(m, x); }, m.x * m.y) + m.x;
     }},
    {"checkpoint_reentrant_twice", [](const Material& m) { return reentrant(m, silu(reentrant(m, m.x * m.y))); }},
    {"checkpoint_reentrant_with_dropout",
     [](const Material& m) {
       const auto region = [m](const Tensor& x) { return dropout(linear(silu(x * 9.0), m.matrix, Tensor()), 0.4); };
       return m.x.tape().checkpoint_reentrant(region, m.x * m.y) * m.vector;
     }},
    // Each nested backward pass adds to the parameter's .grad on its own; the second adds a transposed gradient to it.
    {"transposed_gradient_onto_a_gradient",
     [](const Material& m) {
       const auto region = [m](const Tensor& x) { return x + slice(transpose(m.matrix, 0, 1), 0, 0, kS) * x; };
       return m.x.tape().checkpoint_reentrant(region, m.x.tape().checkpoint_reentrant(region, m.x * m.y));
     }},
};

class TapeGradients : public testing::TestWithParam<Program> {
 protected:
  // loss = sum of the result times fixed numbers.
  static Trace trace() {
    Tape tape({.operands = true});
    tape.begin_phase("load");
    const auto parameter = [&](const char* name, const Shape& shape) {
      return tape.parameter(name, shape, DType::f64, Parameter::Role::matrix, true);
    };
    Material m{parameter("x", {kB, kS, kH}),
               parameter("y", {kB, kS, kH}),
               parameter("vector", {kH}),
               parameter("column", {kB, kS, kOne}),
               parameter("matrix", {kH, kH}),
               parameter("table", {kVocab, kH}),
               tape.empty(OpKind::load_tokens, {kB, kS}, DType::i64)};
    tape.run(OpKind::load_tokens, {}, {&m.ids});
    tape.trace().vocab_size = kVocab.size;
    tape.begin_phase("forward");
    const Tensor result = GetParam().result(m);
    const Tensor weights = tape.parameter("weights", result.shape(), DType::f64, Parameter::Role::norm, false);
    const Tensor loss = mean_all(result * weights);
    tape.trace().losses.push_back(loss.impl()->storage->id);
    tape.begin_phase("backward");
    tape.backward(loss);
    return tape.finish();
  }
};

INSTANTIATE_TEST_SUITE_P(Programs, TapeGradients, testing::ValuesIn(kPrograms),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(TapeGradients, AreTheDerivativesOfTheForwardPass) {
  const Trace traced = trace();
  HostRunOptions options;
  options.executor.poison = true;
  options.keep_gradients = true;
  const HostRun run = run_on_host(traced, {}, options);
  ASSERT_FALSE(run.failure) << run.failure->what;
  ASSERT_FALSE(run.gradients.empty());
  const double stated = stated_slope(traced, run.gradients), measured = measured_slope(traced, 1e-5);
  EXPECT_NEAR(stated, measured, GetParam().tolerance * std::fabs(measured) + 1e-9);
}

}  // namespace
}  // namespace ledger
