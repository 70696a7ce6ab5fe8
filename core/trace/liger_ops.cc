#include "core/trace/liger_ops.h"

#include <array>

#include "core/trace/fused_ops.h"
#include "core/trace/operators.h"

namespace ledger::liger {
namespace {

// @ensure_contiguous, within a function that autograd does not look into.
Tensor rows_of(const Tensor& x) {
  const Tape::NoGrad no_grad(x.tape());
  return contiguous(x);
}

void rms_norm_rule(Node& node, const Gradients& in, Gradients& out) {
  Tape& tape = *node.tape;
  const Tensor x = tape.unpack(node, 0), weight = tape.unpack(node, 1), rstd = tape.unpack(node, 2);
  constexpr OpKind kOp = OpKind::rms_norm_backward;
  const Tensor gradient = rows_of(in[0]);
  const bool in_place = node.attr.i[1] != 0;
  out[0] = in_place ? gradient : zeros(tape, gradient.shape(), gradient.dtype());
  if (node.needs(1)) out[1] = tape.empty(kOp, weight.shape(), weight.dtype());
  const std::array<const Tensor*, 4> inputs{&gradient, &x, &rstd, &weight};
  const std::array<const Tensor*, 2> outputs{&out[0], &out[1]};
  tape.run(kOp, inputs, std::span(outputs).first(out[1] ? 2 : 1), {0, {node.attr.i[0], 0}});
}

// The memory of a saved tensor, from now on that of its gradient.
Tensor over(const Tensor& saved) {
  Tape& tape = saved.tape();
  Tensor gradient = tape.detach(saved);
  tape.relabel(gradient, Category::activation_gradients);
  return gradient;
}

void gated_rule(Node& node, const Gradients& in, Gradients& out) {
  Tape& tape = *node.tape;
  const Tensor gradient = rows_of(in[0]);
  const Tensor gate = tape.unpack(node, 0), up = tape.unpack(node, 1);
  out[0] = over(gate);
  out[1] = over(up);
  tape.run(OpKind::swiglu_backward, {&gradient, &gate, &up}, {&out[0], &out[1]}, node.attr);
}

// Turns x [b, n, s, d] where it lies, by the positions or back.
Tensor turned(const Tensor& x, const Tensor& frequencies, bool back) {
  Tape& tape = x.tape();
  const Tape::NoGrad no_grad(tape);
  const Tensor rows = contiguous(transpose(x, 1, 2));
  tape.run(OpKind::rope, {&rows, &frequencies}, {&rows}, {0, {back ? 1 : 0, 0}});
  return transpose(rows, 1, 2);
}

void rope_rule(Node& node, const Gradients& in, Gradients& out) {
  out[0] = turned(in[0], node.tape->unpack(node, 0), true);
}

// `gelu`: of the gate; else silu.
Tensor gated(const Tensor& gate, const Tensor& up, bool gelu) {
  Tape& tape = gate.tape();
  Node* node = tape.node(gated_rule, {&gate, &up});
  const Attr kind{0, {gelu ? 1 : 0, 0}};
  if (node != nullptr) node->attr = kind;
  const Tensor a = rows_of(gate);
  const Tensor b = rows_of(up);
  Tensor result = tape.empty(OpKind::swiglu, a.shape(), a.dtype());
  tape.run(OpKind::swiglu, {&a, &b}, {&result}, kind);
  tape.save(node, a);
  tape.save(node, b);
  tape.attach(node, result);
  return result;
}

}  // namespace

Tensor rms_norm(const Tensor& x, const Tensor& weight, const RmsNorm& norm) {
  Node* node = x.tape().node(rms_norm_rule, {&x, &weight});
  const std::int64_t offset = norm.gemma ? 1 : 0;
  if (node != nullptr) node->attr.i = {offset, norm.in_place ? 1 : 0};
  return rms_norm_by(node, rows_of(x), weight, norm.eps, offset);
}

Tensor silu_mul(const Tensor& gate, const Tensor& up) {
  return gated(gate, up, false);
}

Tensor gelu_mul(const Tensor& gate, const Tensor& up) {
  return gated(gate, up, true);
}

Tensor rope(const Tensor& x, const Tensor& cos, const Tensor& sin, const Tensor& inverse_frequencies) {
  Tape& tape = x.tape();
  Node* node = tape.node(rope_rule, {&x});
  Tensor result = turned(x, inverse_frequencies, false);
  tape.save(node, inverse_frequencies);
  tape.save(node, cos);
  tape.save(node, sin);
  tape.attach(node, result);
  return result;
}

}  // namespace ledger::liger
