// matrix_ops.cc - matrix products, tables and the loss.

#include "core/trace/backward_rules.h"
#include "core/trace/operators.h"
#include "core/trace/strides.h"

namespace ledger {
namespace {

bool is_transposed(const Tensor& b) {
  const Strides& strides = b.impl()->strides;
  return strides[0] == 1 && strides[1] == static_cast<std::int64_t>(b.dim(0).size);
}

// [.., n] as [rows, n].
Shape rows_of(const Shape& shape) {
  Dim rows{1, Sym::none};
  for (std::size_t i = 0; i + 1 < shape.rank; ++i)
    rows.size = times(rows.size, shape[i].size);
  const bool tokens = shape.rank == 3 && shape[0].sym == Sym::b && shape[1].sym == Sym::s;
  if (tokens) rows.sym = Sym::tokens;
  return {rows, shape.last()};
}

Shape with_last(const Shape& shape, Dim last) {
  Shape result = shape;
  result.set_last(last);
  return result;
}

}  // namespace

Tensor mm(const Tensor& a, const Tensor& b) {
  Tape& tape = a.tape();
  Node* node = tape.node(backward::mm, {&a, &b});
  if (node != nullptr) node->attr.i[0] = is_transposed(b) ? 1 : 0;
  if (b.requires_grad()) tape.save(node, a);
  if (a.requires_grad()) tape.save(node, b);
  Tensor result = tape.empty(OpKind::mm, {a.dim(0), b.dim(1)}, a.dtype());
  tape.ensure_cublas_workspace();
  tape.run(OpKind::mm, {&a, &b}, {&result});
  tape.attach(node, result);
  return result;
}

Tensor addmm(const Tensor& bias, const Tensor& a, const Tensor& b) {
  Tape& tape = a.tape();
  Node* node = tape.node(backward::addmm, {&bias, &a, &b});
  if (node != nullptr) node->attr.i[0] = is_transposed(b) ? 1 : 0;
  if (b.requires_grad()) tape.save(node, a);
  if (a.requires_grad()) tape.save(node, b);
  Tensor result = tape.empty(OpKind::addmm, {a.dim(0), b.dim(1)}, a.dtype());
  tape.ensure_cublas_workspace();
  tape.run(OpKind::addmm, {&bias, &a, &b}, {&result});
  tape.attach(node, result);
  return result;
}

Tensor bmm(const Tensor& first, const Tensor& second) {
  Tape& tape = first.tape();
  const Tensor a = tape.autocast_low(first);
  const Tensor b = tape.autocast_low(second);
  Node* node = tape.node(backward::bmm, {&a, &b});
  if (b.requires_grad()) tape.save(node, a);
  if (a.requires_grad()) tape.save(node, b);
  Tensor result = tape.empty(OpKind::bmm, {a.dim(0), a.dim(1), b.dim(2)}, a.dtype());
  tape.ensure_cublas_workspace();
  tape.run(OpKind::bmm, {&a, &b}, {&result});
  tape.attach(node, result);
  return result;
}

Tensor baddbmm(const Tensor& added, const Tensor& first, const Tensor& second, double alpha) {
  Tape& tape = first.tape();
  const Tensor self = tape.autocast_low(added);
  const Tensor a = tape.autocast_low(first);
  const Tensor b = tape.autocast_low(second);
  Node* node = tape.node(backward::baddbmm, {&a, &b});
  if (node != nullptr) node->attr.x = alpha;
  if (b.requires_grad()) tape.save(node, a);
  if (a.requires_grad()) tape.save(node, b);
  Tensor result = tape.empty(OpKind::baddbmm, {a.dim(0), a.dim(1), b.dim(2)}, a.dtype());
  tape.ensure_cublas_workspace();
  tape.run(OpKind::baddbmm, {&self, &a, &b}, {&result}, {alpha, {}});
  tape.attach(node, result);
  return result;
}

Tensor matmul(const Tensor& first, const Tensor& second) {
  Tape& tape = first.tape();
  const Tensor a = tape.autocast_low(first);
  const Tensor b = tape.autocast_low(second);
  const Dim batch{times(a.dim(0).size, a.dim(1).size), Sym::none};
  const Tensor folded_a = reshape(a, {batch, a.dim(2), a.dim(3)});
  const Tensor folded_b = reshape(b, {batch, b.dim(2), b.dim(3)});
  return view(bmm(folded_a, folded_b), {a.dim(0), a.dim(1), a.dim(2), b.dim(3)});
}

// LinearAlgebra.cpp, should_fold: rows are copied together for the sake of a weight's gradient, and not without one.
Tensor linear(const Tensor& input, const Tensor& master_weight, const Tensor& master_bias) {
  Tape& tape = input.tape();
  const Tensor x = tape.autocast_low(input);
  const Tensor weight = tape.autocast_low(master_weight);
  const Tensor bias = master_bias ? tape.autocast_low(master_bias) : Tensor();
  const Tensor transposed = transpose(weight, 0, 1);
  if (x.rank() == 3 && !bias && !weight.requires_grad() && !view_strides(x, rows_of(x.shape())))
    return bmm(x, expand(transposed, {x.dim(0), weight.dim(1), weight.dim(0)}));
  const Tensor rows = x.rank() == 2 ? x : reshape(x, rows_of(x.shape()));
  const Tensor product = bias ? addmm(bias, rows, transposed) : mm(rows, transposed);
  return x.rank() == 2 ? product : view(product, with_last(x.shape(), weight.dim(0)));
}

Tensor linear_by_matmul(const Tensor& input, const Tensor& master_weight, const Tensor& bias) {
  Tape& tape = input.tape();
  const Tensor transposed = transpose(master_weight, 0, 1);
  const Tensor x = tape.autocast_low(input);
  const Tensor weight = tape.autocast_low(transposed);
  const Tensor rows = x.rank() == 2 ? x : reshape(x, rows_of(x.shape()));
  const Tensor product = mm(rows, weight);
  const Tensor result = x.rank() == 2 ? product : view(product, with_last(x.shape(), weight.dim(1)));
  return bias ? result + bias : result;
}

Tensor conv1d(const Tensor& input, const Tensor& master_weight, const Tensor& master_bias) {
  Tape& tape = input.tape();
  const Tensor x = tape.autocast_low(input);
  const Tensor weight = tape.autocast_low(master_weight);
  const Tensor bias = tape.autocast_low(master_bias);
  return view(addmm(bias, reshape(x, rows_of(x.shape())), weight), with_last(x.shape(), weight.dim(1)));
}

Tensor embedding(const Tensor& weight, const Tensor& ids) {
  Tape& tape = weight.tape();
  Node* node = tape.node(backward::embedding, {&weight});
  tape.save(node, ids);
  Shape shape = ids.shape();
  shape.push(weight.dim(1));
  Tensor result = tape.empty(OpKind::embedding, shape, weight.dtype());
  tape.run(OpKind::embedding, {&weight, &ids}, {&result});
  tape.attach(node, result);
  return result;
}

Tensor log_softmax(const Tensor& input) {
  Tape& tape = input.tape();
  const Tensor a = tape.autocast_fp32(input);
  Node* node = tape.node(backward::log_softmax, {&a});
  Tensor result = tape.empty(OpKind::log_softmax, a.shape(), a.dtype());
  tape.run(OpKind::log_softmax, {&a}, {&result});
  tape.save_output(node, result);
  tape.attach(node, result);
  return result;
}

Tensor nll_loss(const Tensor& input, const Tensor& targets, Reduction reduction) {
  Tape& tape = input.tape();
  const Tensor a = tape.autocast_fp32(input);
  Node* node = tape.node(backward::nll_loss, {&a});
  tape.save(node, a);
  tape.save(node, targets);
  Tensor loss = tape.empty(OpKind::nll_loss, Shape{}, a.dtype());
  const Tensor total_weight = tape.empty(OpKind::nll_loss, Shape{}, a.dtype());
  const Attr attr{0, {reduction == Reduction::sum ? 1 : 0, 0}};
  if (node != nullptr) node->attr = attr;
  tape.run(OpKind::nll_loss, {&a, &targets}, {&loss, &total_weight}, attr);
  tape.save(node, total_weight);
  tape.attach(node, loss);
  return loss;
}

Tensor not_equal(const Tensor& a, std::int64_t value) {
  Tensor result = a.tape().empty(OpKind::not_equal, a.shape(), DType::boolean);
  a.tape().run(OpKind::not_equal, {&a}, {&result}, {0, {value, 0}});
  return result;
}

Tensor count_true(const Tensor& mask) {
  Tensor result = mask.tape().empty(OpKind::sum, Shape{}, DType::i64);
  mask.tape().run(OpKind::sum, {&mask}, {&result});
  return result;
}

Tensor index_rows(const Tensor& a, const Tensor& order) {
  Tape& tape = a.tape();
  Node* node = tape.node(backward::index_rows, {&a});
  tape.save(node, order);
  Shape shape = a.shape();
  shape.set(0, order.dim(0));
  Tensor result = tape.empty(OpKind::index_rows, shape, a.dtype());
  tape.run(OpKind::index_rows, {&a, &order}, {&result});
  tape.attach(node, result);
  return result;
}

Tensor bookkeeping(Tape& tape, const Shape& shape, DType dtype) {
  Tensor result = tape.empty(OpKind::bookkeeping, shape, dtype);
  tape.run(OpKind::bookkeeping, {}, {&result});
  return result;
}

}  // namespace ledger
