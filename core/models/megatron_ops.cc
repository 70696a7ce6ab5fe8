#include "core/models/megatron_ops.h"

#include <utility>

#include "core/models/megatron_tensors.h"
#include "core/models/rotary.h"

namespace ledger::megatron {
namespace {

constexpr Attr kTanhGelu{0, {1, 0}};

// The gradient of the bias is that of x, which the engine sums (BiasGeLUFunction.backward returns it twice).
void activation_backward(Node& node, const Gradients& in, Gradients& out) {
  Tape& tape = *node.tape;
  const Tensor x = tape.unpack(node, 0);
  if (in[0].dim(-1).size != x.dim(-1).size) {
    out[0] = tape.empty(OpKind::silu_backward, x.shape(), x.dtype());
    const Tensor gate = half(x, 0), up = half(x, 1), of_gate = half(out[0], 0), of_up = half(out[0], 1);
    tape.run(OpKind::swiglu_backward, {&in[0], &gate, &up}, {&of_gate, &of_up});
    return;
  }
  out[0] = tape.empty(OpKind::gelu_backward, x.shape(), x.dtype());
  if (node.saved_count > 1) {
    const Tensor bias = tape.unpack(node, 1);
    tape.run(OpKind::add, {&x, &bias}, {&out[0]});
    tape.run(OpKind::gelu_backward, {&in[0], &out[0]}, {&out[0]}, kTanhGelu);
  } else {
    tape.run(OpKind::gelu_backward, {&in[0], &x}, {&out[0]}, kTanhGelu);
  }
  if (node.needs(1)) out[1] = out[0];
}

void squared_relu_backward(Node& node, const Gradients& in, Gradients& out) {
  Tape& tape = *node.tape;
  const Tensor x = tape.unpack(node, 0);
  out[0] = tape.empty(OpKind::relu, x.shape(), x.dtype());
  tape.run(OpKind::relu, {&x}, {&out[0]});
  tape.run(OpKind::mul_scalar, {&out[0]}, {&out[0]}, {2, {}});
  tape.run(OpKind::mul_inplace, {&out[0], &in[0]}, {&out[0]});
}

void dropout_add_backward(Node& node, const Gradients& in, Gradients& out) {
  Tape& tape = *node.tape;
  out[1] = in[0];
  out[0] = in[0];
  if (node.saved_count > 0) {
    const Tensor mask = tape.unpack(node, 0);
    out[0] = tape.empty(OpKind::dropout_backward, in[0].shape(), in[0].dtype());
    tape.run(OpKind::dropout_backward, {&in[0], &mask}, {&out[0]}, {node.attr.x, {}});
  }
  if (node.needs(2)) out[2] = made(OpKind::sum, out[0], {in[0].shape().last()}, in[0].dtype());
}

void split_backward(Node& node, const Gradients& in, Gradients& out) {
  Tape& tape = *node.tape;
  out[0] = tape.empty(OpKind::cat, node.input_shape, in[0].dtype());
  tape.run(OpKind::cat, {&in[0], &in[1], &in[2]}, {&out[0]}, {0, {node.input_shape.rank - 1, 0}});
}

// Turns x [b, s, n, d] in place, whose first token stands at `first`.
void turn_heads(const Tensor& x, const Tensor& frequencies, std::uint64_t first, bool back) {
  x.tape().run(OpKind::rope, {&x, &frequencies}, {&x}, {0, {back ? 1 : 0, static_cast<std::int64_t>(first)}});
}

// x [s, b, n, d] turned by its places in the sequence, or back; of heads' first part, where there are fewer
// frequencies. `ranks` as fused_rope has it.
Tensor turned_heads(const Tensor& x, const Tensor& frequencies, std::uint64_t rank, std::uint64_t ranks, bool back) {
  Tape& tape = x.tape();
  Tensor result = tape.empty(OpKind::mul, x.shape(), x.dtype());
  tape.run(OpKind::clone, {&x}, {&result});
  Shape shape = x.shape();
  Strides strides = result.impl()->strides;
  shape.set(0, x.dim(1));
  shape.set(1, x.dim(0));
  std::swap(strides[0], strides[1]);
  const Dim turned{times(2, frequencies.dim(0).size), Sym::none};
  if (turned.size != x.dim(-1).size) shape.set_last(turned);
  if (ranks == 1) {
    turn_heads(tape.view_of(result, shape, strides, 0), frequencies, 0, back);
    return result;
  }
  const std::uint64_t piece = shape.sizes[1] / 2;
  shape.set(1, {piece, Sym::none});
  for (const std::uint64_t half : {0u, 1u}) {
    const std::uint64_t number = half == 0 ? rank : 2 * ranks - 1 - rank;
    const std::uint64_t offset = times(half * piece, static_cast<std::uint64_t>(strides[1]));
    turn_heads(tape.view_of(result, shape, strides, offset), frequencies, number * piece, back);
  }
  return result;
}

void rope_backward(Node& node, const Gradients& in, Gradients& out) {
  const Tensor frequencies = node.tape->unpack(node, 0);
  const auto rank = static_cast<std::uint64_t>(node.attr.i[0]), ranks = static_cast<std::uint64_t>(node.attr.i[1]);
  out[0] = turned_heads(in[0], frequencies, rank, ranks, true);
}

}  // namespace

Tensor bias_activation(const Tensor& x, const Tensor& bias, bool gated) {
  Tape& tape = x.tape();
  Node* node = tape.node(activation_backward, {&x, &bias});
  tape.save(node, x);
  Shape shape = x.shape();
  if (gated) shape.set_last({x.dim(-1).size / 2, Sym::none});
  Tensor result = tape.empty(gated ? OpKind::silu : OpKind::gelu, shape, x.dtype());
  if (gated) {
    const Tensor gate = half(x, 0), up = half(x, 1);
    tape.run(OpKind::swiglu, {&gate, &up}, {&result});
  } else if (bias) {
    tape.save(node, bias);
    tape.run(OpKind::add, {&x, &bias}, {&result});
    tape.run(OpKind::gelu, {&result}, {&result}, kTanhGelu);
  } else {
    tape.run(OpKind::gelu, {&x}, {&result}, kTanhGelu);
  }
  tape.attach(node, result);
  return result;
}

Tensor squared_relu(const Tensor& x) {
  Tape& tape = x.tape();
  Node* node = tape.node(squared_relu_backward, {&x});
  tape.save(node, x);
  Tensor result = tape.empty(OpKind::relu, x.shape(), x.dtype());
  tape.run(OpKind::relu, {&x}, {&result});
  tape.run(OpKind::mul_inplace, {&result, &result}, {&result});
  tape.attach(node, result);
  return result;
}

Tensor bias_dropout_add(const Tensor& x, const Tensor& bias, const Tensor& residual, double p) {
  Tape& tape = x.tape();
  Node* node = tape.node(dropout_add_backward, {&x, &residual, &bias});
  if (node != nullptr) node->attr.x = p;
  Tensor result = tape.empty(OpKind::add, residual.shape(), residual.dtype());
  if (bias) {
    tape.run(OpKind::add, {&x, &bias}, {&result});
  } else {
    tape.run(OpKind::clone, {&x}, {&result});
  }
  if (p > 0) {
    const Tensor mask = tape.empty(OpKind::dropout, x.shape(), DType::boolean);
    tape.save(node, mask);
    tape.run(OpKind::dropout, {&result}, {&result, &mask}, {p, {}});
  }
  tape.run(OpKind::add, {&result, &residual}, {&result});
  tape.attach(node, result);
  return result;
}

Heads split_qkv(const Tensor& mixed, Dim q_width, Dim d) {
  Tape& tape = mixed.tape();
  Node* node = tape.node(split_backward, {&mixed});
  const auto part = [&](std::uint64_t offset, Dim width) {
    Shape shape = mixed.shape();
    shape.set_last(width);
    Tensor view = tape.view_of(mixed, shape, mixed.impl()->strides, offset);
    tape.attach(node, view);
    return view;
  };
  Heads heads;
  heads.q = part(0, q_width);
  heads.k = part(q_width.size, d);
  heads.v = part(plus(q_width.size, d.size), d);
  return heads;
}

Tensor fused_rope(const Tensor& x, const Tensor& frequencies, std::uint64_t rank, std::uint64_t ranks) {
  Tape& tape = x.tape();
  Node* node = tape.node(rope_backward, {&x});
  if (node != nullptr) node->attr.i = {static_cast<std::int64_t>(rank), static_cast<std::int64_t>(ranks)};
  tape.save(node, frequencies);
  Tensor result = turned_heads(x, frequencies, rank, ranks, false);
  tape.attach(node, result);
  return result;
}

Tensor plain_rope(const Tensor& x, const Tensor& angles) {
  const Dim turned = angles.dim(1), half_turned{turned.size / 2, Sym::none};
  const Dim passed{x.dim(-1).size - turned.size, Sym::none};
  const Tensor head = passed.size == 0 ? x : slice(x, -1, 0, turned);
  const Shape beside_heads{angles.dim(0), kOne, kOne, turned};
  Tensor cosine, sine;
  {
    const Tape::NoGrad no_grad(x.tape());
    cosine = view(to(cos(angles) * 1.0, x.dtype()), beside_heads);
    sine = view(to(sin(angles) * 1.0, x.dtype()), beside_heads);
  }
  const Tensor along = head * cosine;
  const Tensor across = rotate_half(head, half_turned) * sine;
  const Tensor result = along + across;
  return passed.size == 0 ? cat(result, -1) : cat(result, slice(x, -1, turned.size, passed), -1);
}

}  // namespace ledger::megatron
