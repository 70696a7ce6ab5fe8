#include "core/trace/operators.h"

#include "core/trace/backward_rules.h"
#include "core/trace/strides.h"

namespace ledger {
namespace {

Shape broadcast(const Shape& a, const Shape& b) {
  if (a.same_sizes(b)) return a;
  const Shape& longer = a.rank >= b.rank ? a : b;
  const Shape& shorter = a.rank >= b.rank ? b : a;
  Shape result = longer;
  const std::size_t skip = static_cast<std::size_t>(longer.rank - shorter.rank);
  for (std::size_t i = 0; i < shorter.rank; ++i) {
    if (result.sizes[i + skip] == 1) result.set(i + skip, shorter[i]);
  }
  return result;
}

// torch.result_type for the dtypes a model meets: the wider float wins, a float beats an integer.
DType promote(DType a, DType b) {
  if (a == b) return a;
  if (!info(a).floating) return b;
  if (!info(b).floating) return a;
  if (element_bytes(a) == element_bytes(b)) return DType::f32;  // bf16 with fp16
  return element_bytes(a) > element_bytes(b) ? a : b;
}

Tensor fresh(Tape& tape, OpKind op, const Shape& shape, DType dtype, const std::optional<Strides>& strides) {
  return tape.empty(op, shape, dtype, strides ? &*strides : nullptr);
}

Tensor unary(OpKind op, const Tensor& a, DType dtype, Attr attr = {}) {
  Tape& tape = a.tape();
  Tensor result = fresh(tape, op, a.shape(), dtype, elementwise_strides(a.shape(), a));
  tape.run(op, {&a}, {&result}, attr);
  return result;
}

// A unary operator whose rule needs only `attr`.
Tensor unary_with_rule(OpKind op, const Tensor& a, DType dtype, BackwardRule rule, Attr attr = {}) {
  Node* node = a.tape().node(rule, {&a});
  if (node != nullptr) node->attr = attr;
  Tensor result = unary(op, a, dtype, attr);
  a.tape().attach(node, result);
  return result;
}

Tensor binary(OpKind op, const Tensor& a, const Tensor& b) {
  Tape& tape = a.tape();
  const DType dtype = promote(a.dtype(), b.dtype());
  Tensor result;
  if (a.is_contiguous() && a.shape().same_sizes(b.shape())) {  // nearly always
    result = tape.empty(op, a.shape(), dtype);
  } else {
    const Shape shape = broadcast(a.shape(), b.shape());
    result = fresh(tape, op, shape, dtype, elementwise_strides(shape, a, &b));
  }
  tape.run(op, {&a, &b}, {&result});
  return result;
}

}  // namespace

// --- element-wise
// ------------------------------------------------------------------------------------------------------

Tensor add(const Tensor& a, const Tensor& b) {
  Node* node = a.tape().node(backward::add, {&a, &b});
  Tensor result = binary(OpKind::add, a, b);
  a.tape().attach(node, result);
  return result;
}

Tensor add(const Tensor& a, double b) {
  return unary_with_rule(OpKind::add_scalar, a, a.dtype(), backward::pass, {b, {}});
}

void add_inplace(const Tensor& a, const Tensor& b) {
  a.tape().run(OpKind::add_inplace, {&a, &b}, {&a});
}

Tensor mul(const Tensor& a, const Tensor& b) {
  Tape& tape = a.tape();
  Node* node = tape.node(backward::mul, {&a, &b});
  if (b.requires_grad()) tape.save(node, a);
  if (a.requires_grad()) tape.save(node, b);
  Tensor result = binary(OpKind::mul, a, b);
  tape.attach(node, result);
  return result;
}

Tensor mul(const Tensor& a, double b) {
  return unary_with_rule(OpKind::mul_scalar, a, a.dtype(), backward::mul_scalar, {b, {}});
}

Tensor sub(const Tensor& a, const Tensor& b) {
  Node* node = a.tape().node(backward::sub, {&a, &b});
  Tensor result = binary(OpKind::sub, a, b);
  a.tape().attach(node, result);
  return result;
}

Tensor div(const Tensor& a, const Tensor& b) {
  Tape& tape = a.tape();
  Node* node = tape.node(backward::div, {&a, &b});
  if (b.requires_grad()) tape.save(node, a);
  tape.save(node, b);
  Tensor result = binary(OpKind::div, a, b);
  tape.attach(node, result);
  return result;
}

Tensor sqrt(const Tensor& a) {
  return unary(OpKind::sqrt, a, a.dtype());
}

void mul_inplace(const Tensor& a, const Tensor& scalar) {
  a.tape().run(OpKind::mul_inplace, {&a, &scalar}, {&a});
}

Tensor div(const Tensor& a, double b) {
  return unary_with_rule(OpKind::div_scalar, a, a.dtype(), backward::div_scalar, {b, {}});
}

Tensor rsub(const Tensor& a, double b) {
  return unary(OpKind::rsub_scalar, a, a.dtype(), {b, {}});
}

Tensor neg(const Tensor& a) {
  return unary_with_rule(OpKind::neg, a, a.dtype(), backward::neg);
}

Tensor pow(const Tensor& input, double exponent) {
  const Tensor a = input.tape().autocast_fp32(input);
  Node* node = a.tape().node(backward::pow_scalar, {&a});
  if (node != nullptr) node->attr.x = exponent;
  a.tape().save(node, a);
  Tensor result = unary(OpKind::pow_scalar, a, a.dtype(), {exponent, {}});
  a.tape().attach(node, result);
  return result;
}

Tensor rsqrt(const Tensor& input) {
  const Tensor a = input.tape().autocast_fp32(input);
  Node* node = a.tape().node(backward::rsqrt, {&a});
  Tensor result = unary(OpKind::rsqrt, a, a.dtype());
  a.tape().save_output(node, result);
  a.tape().attach(node, result);
  return result;
}

Tensor reciprocal(const Tensor& a) {
  return unary(OpKind::reciprocal, a, a.dtype());
}

Tensor floor(const Tensor& a) {
  return unary(OpKind::floor, a, a.dtype());
}

Tensor exp(const Tensor& a) {
  return unary(OpKind::exp, a, a.dtype());
}

Tensor log(const Tensor& a) {
  return unary(OpKind::log, a, a.dtype());
}

Tensor logical_or(const Tensor& a, const Tensor& b) {
  return binary(OpKind::logical_or, a, b);
}

Tensor log1p(const Tensor& a) {
  return unary(OpKind::log1p, a, a.dtype());
}

Tensor cos(const Tensor& a) {
  return unary(OpKind::cos, a, a.dtype());
}

Tensor sin(const Tensor& a) {
  return unary(OpKind::sin, a, a.dtype());
}

Tensor silu(const Tensor& a) {
  Node* node = a.tape().node(backward::silu, {&a});
  a.tape().save(node, a);
  Tensor result = unary(OpKind::silu, a, a.dtype());
  a.tape().attach(node, result);
  return result;
}

Tensor silu_backward(const Tensor& gradient, const Tensor& a) {
  return binary(OpKind::silu_backward, gradient, a);
}

Tensor to(const Tensor& a, DType dtype) {
  if (a.dtype() == dtype) return a;
  return unary_with_rule(OpKind::to_copy, a, dtype, backward::to_copy);
}

Tensor clone(const Tensor& a) {
  return unary_with_rule(OpKind::clone, a, a.dtype(), backward::pass);
}

// --- creation
// ------------------------------------------------------------------------------------------------------------

Tensor ones_like(const Tensor& a) {
  Tensor result = a.tape().empty(OpKind::ones_like, a.shape(), a.dtype());
  a.tape().run(OpKind::ones_like, {}, {&result});
  return result;
}

Tensor zeros(Tape& tape, const Shape& shape, DType dtype) {
  Tensor result = tape.empty(OpKind::zeros, shape, dtype);
  tape.run(OpKind::zeros, {}, {&result});
  return result;
}

Tensor ones(Tape& tape, const Shape& shape, DType dtype) {
  Tensor result = tape.empty(OpKind::ones_like, shape, dtype);
  tape.run(OpKind::ones_like, {}, {&result});
  return result;
}

Tensor full(Tape& tape, const Shape& shape, double value, DType dtype) {
  Tensor result = tape.empty(OpKind::full, shape, dtype);
  tape.run(OpKind::full, {}, {&result}, {value, {}});
  return result;
}

Tensor zeros_like(const Tensor& a) {
  Tensor result = a.tape().empty(OpKind::zeros_like, a.shape(), a.dtype());
  a.tape().run(OpKind::zeros_like, {}, {&result});
  return result;
}

Tensor arange(Tape& tape, Dim length) {
  Tensor result = tape.empty(OpKind::arange, {length}, DType::i64);
  tape.run(OpKind::arange, {}, {&result});
  return result;
}

void copy_into(const Tensor& destination, const Tensor& source) {
  destination.tape().run(OpKind::copy_into, {&source}, {&destination});
}

// --- reductions and joins
// --------------------------------------------------------------------------------------------------

Tensor mean_last(const Tensor& a) {
  Node* node = a.tape().node(backward::mean, {&a});
  if (node != nullptr) node->attr.x = static_cast<double>(a.dim(-1).size);
  Shape shape = a.shape();
  shape.set_last({1, Sym::none});
  Tensor result = a.tape().empty(OpKind::mean, shape, a.dtype());
  a.tape().run(OpKind::mean, {&a}, {&result});
  a.tape().attach(node, result);
  return result;
}

Tensor mean_all(const Tensor& a) {
  Node* node = a.tape().node(backward::mean, {&a});
  if (node != nullptr) node->attr.x = static_cast<double>(a.shape().numel());
  Tensor result = a.tape().empty(OpKind::mean, Shape{}, a.dtype());
  a.tape().run(OpKind::mean, {&a}, {&result});
  a.tape().attach(node, result);
  return result;
}

Tensor sum_to(const Tensor& a, const Shape& shape) {
  Tensor result = a.tape().empty(OpKind::sum, shape, a.dtype());
  a.tape().run(OpKind::sum, {&a}, {&result});
  return result;
}

namespace {

Shape with_dim(const Shape& shape, int at, Dim dim) {
  Shape result = shape;
  result.set(static_cast<std::size_t>(at), dim);
  return result;
}

}  // namespace

// Autocast first brings both to the wider dtype (its list "promote").
Tensor cat(const Tensor& left, const Tensor& right, int dim, Sym joined) {
  Tape& tape = left.tape();
  const DType dtype = promote(left.dtype(), right.dtype());
  const Tensor a = tape.autocast_enabled() ? to(left, dtype) : left;
  const Tensor b = tape.autocast_enabled() ? to(right, dtype) : right;
  const int at = dim < 0 ? dim + a.rank() : dim;
  Node* node = tape.node(backward::cat, {&a, &b});
  const Dim first = a.dim(at), second = b.dim(at);
  const bool halves = first.sym == Sym::half_d && second.sym == Sym::half_d;
  const Shape shape = with_dim(a.shape(), at, {plus(first.size, second.size), halves ? Sym::d : joined});
  const Attr attr{0, {at, static_cast<std::int64_t>(a.dim(at).size)}};
  if (node != nullptr) node->attr = attr;
  Tensor result = tape.empty(OpKind::cat, shape, dtype);
  tape.run(OpKind::cat, {&a, &b}, {&result}, attr);
  tape.attach(node, result);
  return result;
}

Tensor cat(const Tensor& a, int dim) {
  Tape& tape = a.tape();
  Node* node = tape.node(backward::pass, {&a});
  Tensor result = tape.empty(OpKind::cat, a.shape(), a.dtype());
  tape.run(OpKind::cat, {&a}, {&result}, {0, {dim, 0}});
  tape.attach(node, result);
  return result;
}

Tensor cat(const Tensor& a, const Tensor& b, const Tensor& c, int dim, Sym joined) {
  const std::uint64_t size = plus(plus(a.dim(dim).size, b.dim(dim).size), c.dim(dim).size);
  Tensor result = a.tape().empty(OpKind::cat, with_dim(a.shape(), dim, {size, joined}), a.dtype());
  a.tape().run(OpKind::cat, {&a, &b, &c}, {&result}, {0, {dim, 0}});
  return result;
}

Tensor cat(std::span<const Tensor> parts, int dim, Dim joined) {
  const Tensor& first = parts.front();
  const int at = dim < 0 ? dim + first.rank() : dim;
  Shape shape = first.shape();
  shape.set(static_cast<std::size_t>(at), joined);
  Tensor result = first.tape().empty(OpKind::cat, shape, first.dtype());
  std::vector<const Tensor*> inputs(parts.size());
  for (std::size_t i = 0; i < parts.size(); ++i)
    inputs[i] = &parts[i];
  const Tensor* output = &result;
  first.tape().run(OpKind::cat, inputs, {&output, 1}, {0, {at, static_cast<std::int64_t>(first.dim(at).size)}});
  return result;
}

namespace {

// CatBackward: to a part its window on the gradient, to the node of the next part all of it.
void cat_all_rule(Node& node, const Gradients& in, Gradients& out) {
  const auto dim = static_cast<int>(node.attr.i[0]);
  const Dim length = node.input_shape[static_cast<std::size_t>(dim)];
  if (node.needs(0)) out[0] = slice(in[0], dim, static_cast<std::uint64_t>(node.attr.i[1]), length);
  if (node.needs(1)) out[1] = in[0];
}

}  // namespace

// PyTorch's one node is here a chain of one for each part, since nodes have few inputs.
Tensor cat_all(std::span<const Tensor> parts, int dim, Dim joined) {
  Tensor result = cat(parts, dim, joined);
  Tape& tape = result.tape();
  const int at = dim < 0 ? dim + result.rank() : dim;
  std::uint64_t start = result.dim(at).size;
  Tensor rest;
  for (std::size_t i = parts.size(); i-- > 0;) {
    start -= parts[i].dim(at).size;
    Node* const node = tape.node(cat_all_rule, {&parts[i], &rest});
    if (node != nullptr) node->attr.i = {at, static_cast<std::int64_t>(start)};
    Tensor from_here = i == 0 ? result : tape.detach(result);
    tape.attach(node, from_here);
    rest = std::move(from_here);
  }
  return rest;
}

Tensor argmax_last(const Tensor& a) {
  Shape shape = a.shape();
  --shape.rank;
  Tensor result = a.tape().empty(OpKind::argmax, shape, DType::i64);
  a.tape().run(OpKind::argmax, {&a}, {&result});
  return result;
}

Tensor cumsum_last(const Tensor& a) {
  Tensor result = a.tape().empty(OpKind::cumsum, a.shape(), a.dtype());
  a.tape().run(OpKind::cumsum, {&a}, {&result});
  return result;
}

namespace {

// constant_pad_nd_backward: what was padded is cut off, and the rest cloned.
void pad_rule(Node& node, const Gradients& in, Gradients& out) {
  out[0] = contiguous(slice(in[0], -1, 0, node.input_shape.last()));
}

}  // namespace

Tensor pad_right(const Tensor& a, Dim padded, std::int64_t value) {
  Node* node = a.tape().node(pad_rule, {&a});
  Shape shape = a.shape();
  shape.set_last(padded);
  Tensor result = a.tape().empty(OpKind::pad_right, shape, a.dtype());
  a.tape().run(OpKind::pad_right, {&a}, {&result}, {0, {value, 0}});
  a.tape().attach(node, result);
  return result;
}

Tensor stack(std::span<const Tensor> scalars, Sym sym) {
  Tape& tape = scalars.front().tape();
  Tensor result = tape.empty(OpKind::stack, {{scalars.size(), sym}}, scalars.front().dtype());
  std::vector<const Tensor*> inputs(scalars.size());
  for (std::size_t i = 0; i < scalars.size(); ++i)
    inputs[i] = &scalars[i];
  const Tensor* output = &result;
  tape.run(OpKind::stack, inputs, {&output, 1});
  return result;
}

void all_reduce(const Tensor& tensor, ReduceOp reduction) {
  tensor.tape().run(OpKind::all_reduce, {&tensor}, {&tensor}, {0, {static_cast<std::int64_t>(reduction), 0}});
}

Tensor vector_norm(const Tensor& a) {
  Tensor result = a.tape().empty(OpKind::vector_norm, Shape{}, a.dtype());
  a.tape().run(OpKind::vector_norm, {&a}, {&result});
  return result;
}

Tensor row_norm(const Tensor& a) {
  Tensor result = a.tape().empty(OpKind::row_norm, {a.dim(0)}, a.dtype());
  a.tape().run(OpKind::row_norm, {&a}, {&result});
  return result;
}

Tensor eye(Tape& tape, Dim n, DType dtype) {
  Tensor result = tape.empty(OpKind::eye, {n, n}, dtype);
  tape.run(OpKind::eye, {}, {&result});
  return result;
}

}  // namespace ledger
