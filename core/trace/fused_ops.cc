#include "core/trace/fused_ops.h"

#include <array>

#include "core/trace/operators.h"
#include "core/trace/strides.h"

namespace ledger {
namespace {

// Nobody but `holders` of the caller's reads the memory: what is computed from it may be written over it.
bool alone(const Tensor& tensor, std::uint32_t holders) {
  return tensor.impl()->refs == holders && tensor.impl()->storage->refs == 1;
}

// A gradient that is to be changed in place; `given` is the engine's own handle.
Tensor to_change(const Tensor& given) {
  return alone(given, 1) ? given : clone(given);
}

// The memory of a saved tensor, for a gradient of its shape.
Tensor in_place_of(const Node& node, std::size_t index, const Tensor& saved) {
  Tape& tape = *node.tape;
  const bool held = node.saved[index].tensor.impl() == saved.impl();
  if (!alone(saved, held ? 2 : 1)) return tape.empty(OpKind::swiglu_backward, saved.shape(), saved.dtype());
  Tensor over = tape.detach(saved);
  tape.relabel(over, Category::activation_gradients);
  return over;
}

// Saved: weight, sum, rstd. Edges: residual, x, weight; a sum has one gradient, for both.
void add_rms_norm_rule(Node& node, const Gradients& in, Gradients& out) {
  Tape& tape = *node.tape;
  const Tensor weight = tape.unpack(node, 0), sum = tape.unpack(node, 1), rstd = tape.unpack(node, 2);
  constexpr OpKind kOp = OpKind::add_rms_norm_backward;
  const Tensor gradient = in[1] ? to_change(in[1]) : tape.empty(kOp, sum.shape(), sum.dtype());
  if (in[0]) {
    if (node.needs(2)) out[2] = tape.empty(kOp, weight.shape(), weight.dtype());
    const std::array<const Tensor*, 5> inputs{&in[0], &sum, &rstd, &weight, &gradient};
    const std::array<const Tensor*, 2> outputs{&gradient, &out[2]};
    tape.run(kOp, std::span(inputs).first(in[1] ? 5 : 4), std::span(outputs).first(out[2] ? 2 : 1));
  }
  if (node.needs(0)) out[0] = gradient;
  if (node.needs(1)) out[1] = gradient;
}

void rope_rule(Node& node, const Gradients& in, Gradients& out) {
  const Tensor frequencies = node.tape->unpack(node, 0);
  const Tensor gradient = to_change(in[0]);
  node.tape->run(OpKind::rope, {&gradient, &frequencies}, {&gradient}, {0, {1, 0}});
  out[0] = gradient;
}

void swiglu_rule(Node& node, const Gradients& in, Gradients& out) {
  Tape& tape = *node.tape;
  const Tensor gate = tape.unpack(node, 0), up = tape.unpack(node, 1);
  out[0] = in_place_of(node, 0, gate);
  out[1] = in_place_of(node, 1, up);
  tape.run(OpKind::swiglu_backward, {&in[0], &gate, &up}, {&out[0], &out[1]});
}

void cross_entropy_rule(Node& node, const Gradients& in, Gradients& out) {
  out[0] = node.tape->unpack(node, 0);
  mul_inplace(out[0], in[0]);
}

Tensor like(Tape& tape, OpKind op, const Tensor& a) {
  const auto strides = elementwise_strides(a.shape(), a);
  return tape.empty(op, a.shape(), a.dtype(), strides ? &*strides : nullptr);
}

// Saved: q, k, v, the result, logsumexp.
void own_attention_rule(Node& node, const Gradients& in, Gradients& out) {
  Tape& tape = *node.tape;
  std::array<Tensor, 5> saved;
  for (std::size_t i = 0; i < saved.size(); ++i)
    saved[i] = tape.unpack(node, i);
  for (std::size_t i = 0; i < 3; ++i)
    out[i] = like(tape, OpKind::own_attention_backward, saved[i]);
  tape.run(OpKind::own_attention_backward, {&in[0], &saved[0], &saved[1], &saved[2], &saved[3], &saved[4]},
           {&out[0], &out[1], &out[2]}, node.attr);
}

}  // namespace

Normed add_rms_norm(const Tensor& residual, const Tensor& x, const Tensor& weight, double eps) {
  Tape& tape = residual.tape();
  Node* node = tape.node(add_rms_norm_rule, {&residual, &x, &weight});
  tape.save(node, weight);
  const OpKind op = x ? OpKind::add_rms_norm : OpKind::rms_norm;
  Tensor y = tape.empty(op, residual.shape(), residual.dtype());
  Shape rows = residual.shape();
  rows.set_last({1, Sym::none});
  const Tensor rstd = tape.empty(op, rows, residual.dtype() == DType::f64 ? DType::f64 : DType::f32);
  Tensor sum = tape.detach(x ? x : residual);
  if (x) {
    tape.run(op, {&residual, &sum, &weight}, {&y, &rstd, &sum}, {eps, {}});
  } else {
    tape.run(op, {&sum, &weight}, {&y, &rstd}, {eps, {}});
  }
  tape.save_output(node, sum);
  tape.save(node, rstd);
  tape.attach(node, y);
  tape.attach(node, sum);
  return {std::move(y), std::move(sum)};
}

Tensor rope_inplace(const Tensor& x, const Tensor& inverse_frequencies) {
  Tape& tape = x.tape();
  Node* node = tape.node(rope_rule, {&x});
  tape.save(node, inverse_frequencies);
  Tensor result = tape.detach(x);
  tape.run(OpKind::rope, {&result, &inverse_frequencies}, {&result});
  tape.attach(node, result);
  return result;
}

Tensor swiglu(const Tensor& gate, const Tensor& up) {
  Tape& tape = gate.tape();
  Node* node = tape.node(swiglu_rule, {&gate, &up});
  tape.save(node, gate);
  tape.save(node, up);
  Tensor result = tape.empty(OpKind::swiglu, gate.shape(), gate.dtype());
  tape.run(OpKind::swiglu, {&gate, &up}, {&result});
  tape.attach(node, result);
  return result;
}

Tensor cross_entropy_inplace(const Tensor& logits, const Tensor& targets) {
  Tape& tape = logits.tape();
  Node* node = tape.node(cross_entropy_rule, {&logits});
  const Tensor gradient = tape.detach(logits);
  const DType precise = logits.dtype() == DType::f64 ? DType::f64 : DType::f32;
  const Tensor losses = tape.empty(OpKind::cross_entropy_inplace, {logits.dim(0)}, precise);
  tape.run(OpKind::cross_entropy_inplace, {&gradient, &targets, &targets}, {&gradient, &losses});
  tape.save(node, gradient);
  Tensor loss = sum_to(losses, Shape{});
  tape.attach(node, loss);
  return loss;
}

Tensor own_attention(const Tensor& q, const Tensor& k, const Tensor& v) {
  Tape& tape = q.tape();
  Node* node = tape.node(own_attention_rule, {&q, &k, &v});
  for (const Tensor* input : {&q, &k, &v})
    tape.save(node, *input);
  Tensor out = like(tape, OpKind::own_attention, q);
  const Tensor logsumexp = tape.empty(OpKind::own_attention, {q.dim(0), q.dim(1), q.dim(2)}, DType::f32);
  tape.run(OpKind::own_attention, {&q, &k, &v}, {&out, &logsumexp});
  tape.save_output(node, out);
  tape.save(node, logsumexp);
  tape.attach(node, out);
  return out;
}

}  // namespace ledger
