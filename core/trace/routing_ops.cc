// routing_ops.cc - choosing experts for tokens, sorting tokens by expert, and products group by group.
//
// Sources: tools/autograd/derivatives.yaml (topk, max, gather, div_, masked_fill_, sum, _grouped_mm); torch/csrc/
// autograd/FunctionsManual.cpp (value_selecting_reduction_backward, gather_backward, _grouped_mm_mat1_backward,
// _grouped_mm_mat2_backward).

#include <utility>

#include "core/trace/backward_rules.h"
#include "core/trace/operators.h"
#include "core/trace/strides.h"

namespace ledger {
namespace {

// A handle on `a`'s memory whose history continues with `node`.
Tensor in_place(const Tensor& a, OpKind op, const Tensor& operand, Node* node, Attr attr = {}) {
  Tape& tape = a.tape();
  Tensor result = tape.detach(a);
  tape.run(op, {&a, &operand}, {&result}, attr);
  tape.attach(node, result);
  return result;
}

Tensor made(OpKind op, const Tensor& a, const Shape& shape, DType dtype, Attr attr = {}) {
  Tensor result = a.tape().empty(op, shape, dtype);
  a.tape().run(op, {&a}, {&result}, attr);
  return result;
}

// All dimensions but the last as one: kernels see a matrix.
Tensor as_rows(const Tensor& a) {
  const Dim width = a.dim(-1);
  const Shape shape{{a.shape().numel() / width.size, Sym::none}, width};
  return a.tape().view_of(a, shape, *view_strides(a, shape), 0);
}

// Zeros, and the gradient in its places: in place for plain tensors, out of place for tensor subclasses.
Tensor put_back(OpKind op, Node& node, const Tensor& gradient) {
  Tape& tape = *node.tape;
  const Tensor places = tape.unpack(node, 0);
  Tensor zero;
  if (!tape.plain_tensors()) zero = zeros(tape, node.input_shape, gradient.dtype());
  Tensor result = tape.empty(op, node.input_shape, gradient.dtype());
  const Tensor from = as_rows(gradient), at = as_rows(places), to = as_rows(result);
  tape.run(op, {&from, &at}, {&to});
  return result;
}

void topk_rule(Node& node, const Gradients& in, Gradients& out) {
  out[0] = put_back(OpKind::topk_backward, node, in[0]);
}

void gather_rule(Node& node, const Gradients& in, Gradients& out) {
  out[0] = put_back(OpKind::gather_backward, node, in[0]);
}

void scatter_rule(Node& node, const Gradients& in, Gradients& out) {
  const Tensor places = node.tape->unpack(node, 0);
  const Tensor gradient = node.tape->empty(OpKind::gather, places.shape(), in[0].dtype());
  node.tape->run(OpKind::gather, {&in[0], &places}, {&gradient});
  out[0] = gradient;
}

// The largest of each row of `a`, and where they are.
TopK largest(OpKind op, const Tensor& a, Dim k) {
  Tape& tape = a.tape();
  Node* node = tape.node(topk_rule, {&a});
  Shape shape = a.shape();
  shape.set_last(k);
  TopK result{tape.empty(op, shape, a.dtype()), tape.empty(op, shape, DType::i64)};
  const Tensor from = as_rows(a), values = as_rows(result.values), places = as_rows(result.places);
  tape.run(op, {&from}, {&values, &places}, {0, {static_cast<std::int64_t>(k.size), 0}});
  tape.save(node, result.places);
  tape.attach(node, result.values);
  return result;
}

void masked_fill_rule(Node& node, const Gradients& in, Gradients& out) {
  const Tensor mask = node.tape->unpack(node, 0);
  Tensor gradient = node.tape->empty(OpKind::masked_fill, in[0].shape(), in[0].dtype());
  node.tape->run(OpKind::masked_fill, {&in[0], &mask}, {&gradient});
  out[0] = gradient;
}

void sum_rule(Node& node, const Gradients& in, Gradients& out) {
  const bool kept = in[0].rank() == node.input_shape.rank;
  const Tensor gradient = kept ? in[0] : unsqueeze(in[0], static_cast<int>(node.attr.i[0]));
  out[0] = expand(gradient, node.input_shape);
}

// The gradient of a transposed weight is the transpose of a fresh [E, N, K], as mm's is.
void grouped_mm_rule(Node& node, const Gradients& in, Gradients& out) {
  std::size_t next = 0;
  const Tensor rows = node.needs(1) ? node.tape->unpack(node, next++) : Tensor();
  const Tensor matrices = node.needs(0) ? node.tape->unpack(node, next++) : Tensor();
  const Tensor ends = node.tape->unpack(node, next);
  if (node.needs(0)) out[0] = grouped_mm(in[0], ledger::transpose(matrices, 1, 2), ends);
  if (!node.needs(1)) return;
  const bool transposed = node.attr.i[0] != 0;
  out[1] = transposed ? ledger::transpose(grouped_mm(ledger::transpose(in[0], 0, 1), rows, ends), 1, 2)
                      : grouped_mm(ledger::transpose(rows, 0, 1), in[0], ends);
}

// `x` with dimension `dim` in front: what index_rows takes rows of. No node, for it is only looked at.
Tensor in_front(const Tensor& x, std::size_t dim) {
  Shape shape = x.shape();
  Strides strides = x.impl()->strides;
  std::swap(shape.sizes[0], shape.sizes[dim]);
  std::swap(shape.syms[0], shape.syms[dim]);
  std::swap(strides[0], strides[dim]);
  return x.tape().view_of(x, shape, strides, 0);
}

void take_rule(Node& node, const Gradients& in, Gradients& out) {
  const Tensor place = node.tape->unpack(node, 0);
  const auto dim = static_cast<std::size_t>(node.attr.i[0]);
  Tensor gradient = node.tape->empty(OpKind::index_rows_backward, node.input_shape, in[0].dtype());
  const Tensor from = in_front(in[0], dim), to = in_front(gradient, dim);
  node.tape->run(OpKind::index_rows_backward, {&from, &place}, {&to});
  out[0] = gradient;
}

}  // namespace

Tensor take(const Tensor& a, int dim, std::uint64_t index) {
  Tape& tape = a.tape();
  const Tensor place = full(tape, {{1, Sym::none}}, static_cast<double>(index), DType::i64);
  Node* node = tape.node(take_rule, {&a});
  if (node != nullptr) node->attr.i[0] = dim;
  tape.save(node, place);
  Shape shape = a.shape();
  shape.set(static_cast<std::size_t>(dim), {1, Sym::none});
  Tensor result = tape.empty(OpKind::index_rows, shape, a.dtype());
  const Tensor from = in_front(a, static_cast<std::size_t>(dim)), to = in_front(result, static_cast<std::size_t>(dim));
  tape.run(OpKind::index_rows, {&from, &place}, {&to});
  tape.attach(node, result);
  return result;
}

Tensor add_onto(const Tensor& a, const Tensor& b) {
  Node* node = a.tape().node(backward::add, {&a, &b});
  return in_place(a, OpKind::add_inplace, b, node);
}

TopK topk(const Tensor& a, Dim k) {
  return largest(OpKind::topk, a, k);
}

TopK max_last(const Tensor& a) {
  return largest(OpKind::max_last, a, {1, Sym::none});
}

Tensor gather(const Tensor& a, const Tensor& places) {
  Tape& tape = a.tape();
  Node* node = tape.node(gather_rule, {&a});
  tape.save(node, places);
  Tensor result = tape.empty(OpKind::gather, places.shape(), a.dtype());
  tape.run(OpKind::gather, {&a, &places}, {&result});
  tape.attach(node, result);
  return result;
}

void scatter_value(const Tensor& a, const Tensor& places, double value) {
  a.tape().run(OpKind::scatter_value, {&places}, {&a}, {value, {}});
}

Tensor scatter_inplace(const Tensor& a, const Tensor& places, const Tensor& source) {
  Tape& tape = a.tape();
  Node* node = tape.node(scatter_rule, {&source});
  tape.save(node, places);
  Tensor result = tape.detach(a);
  tape.run(OpKind::scatter_source, {&source, &places}, {&result});
  tape.attach(node, result);
  return result;
}

Tensor logical_not(const Tensor& a) {
  return made(OpKind::logical_not, a, a.shape(), DType::boolean);
}

Tensor masked_fill(const Tensor& a, const Tensor& mask, double value) {
  Tape& tape = a.tape();
  Node* node = tape.node(masked_fill_rule, {&a});
  tape.save(node, mask);
  Tensor result = tape.empty(OpKind::masked_fill, a.shape(), a.dtype());
  tape.run(OpKind::masked_fill, {&a, &mask}, {&result}, {value, {}});
  tape.attach(node, result);
  return result;
}

Sorted sort(const Tensor& a) {
  Tape& tape = a.tape();
  Sorted result{tape.empty(OpKind::sort, a.shape(), a.dtype()), tape.empty(OpKind::sort, a.shape(), DType::i64)};
  tape.run(OpKind::sort, {&a}, {&result.values, &result.places});
  return result;
}

Tensor floor_divide(const Tensor& a, std::uint64_t b) {
  return made(OpKind::floor_divide, a, a.shape(), a.dtype(), {0, {static_cast<std::int64_t>(b), 0}});
}

Tensor at_least(const Tensor& a, std::uint64_t limit) {
  return made(OpKind::at_least, a, a.shape(), DType::boolean, {0, {static_cast<std::int64_t>(limit), 0}});
}

Tensor less(const Tensor& a, std::uint64_t limit) {
  return made(OpKind::less, a, a.shape(), DType::boolean, {0, {static_cast<std::int64_t>(limit), 0}});
}

Tensor amax(const Tensor& a) {
  Shape shape = a.shape();
  shape.set_last(kOne);
  return made(OpKind::amax, a, shape, a.dtype());
}

Tensor histogram(const Tensor& a, Dim bins) {
  return made(OpKind::histc, a, {bins}, a.dtype());
}

void index_put(const Tensor& destination, const Tensor& places, const Tensor& source) {
  destination.tape().run(OpKind::index_put, {&source, &places}, {&destination});
}

Tensor masked_fill_inplace(const Tensor& a, const Tensor& mask, double value) {
  Node* node = a.tape().node(masked_fill_rule, {&a});
  a.tape().save(node, mask);
  return in_place(a, OpKind::masked_fill, mask, node, {value, {}});
}

// What is about to be overwritten and is needed for b's gradient is cloned first (VariableType's original_self).
Tensor div_inplace(const Tensor& a, const Tensor& b) {
  Tape& tape = a.tape();
  Node* node = tape.node(backward::div, {&a, &b});
  if (b.requires_grad()) {
    const Tape::NoGrad no_grad(tape);
    tape.save(node, clone(a));
  }
  tape.save(node, b);
  return in_place(a, OpKind::div_inplace, b, node);
}

Tensor sum_over(const Tensor& a, int dim, bool keep) {
  Tape& tape = a.tape();
  const int at = dim < 0 ? dim + a.rank() : dim;
  Node* node = tape.node(sum_rule, {&a});
  if (node != nullptr) node->attr.i[0] = at;
  Shape kept = a.shape();
  kept.set(static_cast<std::size_t>(at), {1, Sym::none});
  Shape shape;
  for (int i = 0; i < a.rank(); ++i) {
    if (keep || i != at) shape.push(kept[static_cast<std::size_t>(i)]);
  }
  // On autocast's list of operators that are asked for an fp32 result.
  const bool widened = tape.autocast_enabled() && element_bytes(a.dtype()) == 2;
  Tensor result = tape.empty(OpKind::sum, shape, widened ? DType::f32 : a.dtype());
  const Tensor as_kept = tape.view_of(result, kept, contiguous_strides(kept), 0);
  tape.run(OpKind::sum, {&a}, {&as_kept});
  tape.attach(node, result);
  return result;
}

Tensor grouped_mm(const Tensor& a, const Tensor& b, const Tensor& ends) {
  Tape& tape = a.tape();
  const bool by_rows = b.rank() == 3;  // else the groups divide the inner dimension
  Node* node = tape.node(grouped_mm_rule, {&a, &b, &ends});
  if (node != nullptr) node->attr.i[0] = b.impl()->strides[static_cast<std::size_t>(b.rank()) - 1] == 1 ? 0 : 1;
  if (b.requires_grad()) tape.save(node, a);
  if (a.requires_grad()) tape.save(node, b);
  tape.save(node, ends);
  const Shape shape = by_rows ? Shape{a.dim(0), b.dim(2)} : Shape{ends.dim(0), a.dim(0), b.dim(1)};
  Tensor result = tape.empty(OpKind::grouped_mm, shape, a.dtype());
  tape.run(OpKind::grouped_mm, {&a, &b, &ends}, {&result});
  tape.attach(node, result);
  return result;
}

}  // namespace ledger
