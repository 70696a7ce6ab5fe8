// activation_ops.cc - activation functions and layer normalisation, with their backward rules.
//
// Sources: tools/autograd/derivatives.yaml (gelu, relu, tanh, clamp, native_layer_norm, _fused_rms_norm); torch/csrc/
// autograd/FunctionsManual.cpp (clamp_backward); aten/src/ATen/native/cuda/layer_norm_kernel.cu for the statistics'
// dtype.

#include "core/trace/fused_ops.h"
#include "core/trace/operators.h"
#include "core/trace/strides.h"

namespace ledger {
namespace {

Tensor like(OpKind op, const Tensor& a) {
  const auto strides = elementwise_strides(a.shape(), a);
  return a.tape().empty(op, a.shape(), a.dtype(), strides ? &*strides : nullptr);
}

// out0 = the gradient times a function of what was saved.
void from_saved(OpKind op, Node& node, const Gradients& in, Gradients& out) {
  const Tensor saved = node.tape->unpack(node, 0);
  const auto strides = elementwise_strides(in[0].shape(), in[0], &saved);
  Tensor result = node.tape->empty(op, in[0].shape(), in[0].dtype(), strides ? &*strides : nullptr);
  node.tape->run(op, {&in[0], &saved}, {&result}, node.attr);
  out[0] = result;
}

void gelu_rule(Node& node, const Gradients& in, Gradients& out) {
  from_saved(OpKind::gelu_backward, node, in, out);
}

void relu_rule(Node& node, const Gradients& in, Gradients& out) {
  from_saved(OpKind::threshold_backward, node, in, out);
}

void tanh_rule(Node& node, const Gradients& in, Gradients& out) {
  from_saved(OpKind::tanh_backward, node, in, out);
}

void sigmoid_rule(Node& node, const Gradients& in, Gradients& out) {
  from_saved(OpKind::sigmoid_backward, node, in, out);
}

// where(mask, grad, scalar_tensor(0)), the mask of two comparisons joined in place where both sides are cut.
void clamp_rule(Node& node, const Gradients& in, Gradients& out) {
  Tape& tape = *node.tape;
  const Tensor self = tape.unpack(node, 0);
  const Tensor cut = tape.empty(OpKind::outside, self.shape(), DType::boolean);
  if (node.attr.i[0] != 0) bookkeeping(tape, self.shape(), DType::boolean);
  tape.run(OpKind::outside, {&self}, {&cut}, node.attr);
  const Tensor zero = bookkeeping(tape, Shape{}, in[0].dtype());
  out[0] = masked_fill(in[0], cut, 0);
}

Tensor clamp_by(const Tensor& a, Attr attr) {
  Tape& tape = a.tape();
  Node* node = tape.node(clamp_rule, {&a});
  if (node != nullptr) node->attr = attr;
  tape.save(node, a);
  Tensor result = like(OpKind::clamp_max, a);
  tape.run(OpKind::clamp_max, {&a}, {&result}, attr);
  tape.attach(node, result);
  return result;
}

// Functions whose derivative is written in terms of their result save that.
Tensor saving_result(OpKind op, const Tensor& a, BackwardRule rule) {
  Tape& tape = a.tape();
  Node* node = tape.node(rule, {&a});
  Tensor result = like(op, a);
  tape.run(op, {&a}, {&result});
  tape.save_output(node, result);
  tape.attach(node, result);
  return result;
}

// Saved: input, mean, rstd, and weight and bias where there are any.
void layer_norm_rule(Node& node, const Gradients& in, Gradients& out) {
  Tape& tape = *node.tape;
  const Tensor x = tape.unpack(node, 0), mean = tape.unpack(node, 1), rstd = tape.unpack(node, 2);
  const Tensor weight = node.saved_count > 3 ? tape.unpack(node, 3) : Tensor();
  const Dim width = x.dim(-1);
  const auto made = [&](bool wanted, const Shape& shape, DType dtype) {
    return wanted ? tape.empty(OpKind::layer_norm_backward, shape, dtype) : Tensor();
  };
  // Three results as output_mask asks for them; dweight comes along where dbias is wanted.
  const std::size_t results = node.needs(2) ? 3 : node.needs(1) ? 2 : 1;
  const DType dtype = weight ? weight.dtype() : x.dtype();
  const Tensor dense_gradient = dense_copy(in[0]);
  const Tensor dense_x = dense_copy(x);
  out[0] = made(true, x.shape(), x.dtype());
  out[1] = made(results > 1, {width}, dtype);
  out[2] = made(results > 2, {width}, dtype);
  const std::array<const Tensor*, 5> inputs{&in[0], &x, &mean, &rstd, &weight};
  const std::array<const Tensor*, 3> outputs{&out[0], &out[1], &out[2]};
  tape.run(OpKind::layer_norm_backward, std::span(inputs.data(), weight ? 5u : 4u), std::span(outputs.data(), results),
           node.attr);
  for (std::size_t i = 0; i < 2; ++i) {
    if (!node.needs(i)) out[i].reset();
  }
}

void rms_norm_rule(Node& node, const Gradients& in, Gradients& out) {
  Tape& tape = *node.tape;
  const Tensor x = tape.unpack(node, 0), weight = tape.unpack(node, 1), rstd = tape.unpack(node, 2);
  out[0] = tape.empty(OpKind::rms_norm_backward, x.shape(), x.dtype());
  out[1] = tape.empty(OpKind::rms_norm_backward, weight.shape(), weight.dtype());
  tape.run(OpKind::rms_norm_backward, {&in[0], &x, &rstd, &weight}, {&out[0], &out[1]});
}

}  // namespace

Tensor dense_copy(const Tensor& a) {
  return a.is_contiguous() ? Tensor() : a.tape().scratch(a.shape(), a.dtype());
}

Tensor gelu(const Tensor& a, bool tanh_approximation) {
  Tape& tape = a.tape();
  const Attr attr{0, {tanh_approximation ? 1 : 0, 0}};
  Node* node = tape.node(gelu_rule, {&a});
  if (node != nullptr) node->attr = attr;
  tape.save(node, a);
  Tensor result = like(OpKind::gelu, a);
  tape.run(OpKind::gelu, {&a}, {&result}, attr);
  tape.attach(node, result);
  return result;
}

Tensor relu(const Tensor& a) {
  return saving_result(OpKind::relu, a, relu_rule);
}

Tensor tanh(const Tensor& a) {
  return saving_result(OpKind::tanh, a, tanh_rule);
}

Tensor sigmoid(const Tensor& a) {
  return saving_result(OpKind::sigmoid, a, sigmoid_rule);
}

Tensor clamp_max(const Tensor& a, double limit) {
  return clamp_by(a, {limit, {}});
}

Tensor clamp(const Tensor& a, double limit) {
  return clamp_by(a, {limit, {1, 0}});
}

Tensor layer_norm(const Tensor& input, const Tensor& master_weight, const Tensor& master_bias, double eps) {
  Tape& tape = input.tape();
  const Tensor x = tape.autocast_fp32(input);
  const Tensor weight = master_weight ? tape.autocast_fp32(master_weight) : Tensor();
  const Tensor bias = master_bias ? tape.autocast_fp32(master_bias) : Tensor();
  Node* node = tape.node(layer_norm_rule, {&x, &weight, &bias});
  const Attr attr{eps, {bias ? 1 : 0, 0}};
  if (node != nullptr) node->attr = attr;
  tape.save(node, x);
  Shape rows = x.shape();
  rows.set_last({1, Sym::none});
  const Tensor dense = dense_copy(x);  // layer_norm_kernel.cu, expect_contiguous
  Tensor result = tape.empty(OpKind::layer_norm, x.shape(), x.dtype());
  const DType statistics = tape.statistics_dtype(x.dtype());
  const Tensor mean = tape.empty(OpKind::layer_norm, rows, statistics);
  const Tensor rstd = tape.empty(OpKind::layer_norm, rows, statistics);
  std::array<const Tensor*, 3> inputs{&x, &weight, &bias};
  std::array<const Tensor*, 3> outputs{&result, &mean, &rstd};
  const std::size_t given = bias ? 3 : weight ? 2 : 1;
  tape.run(OpKind::layer_norm, std::span(inputs.data(), given), std::span(outputs), attr);
  tape.save(node, mean);
  tape.save(node, rstd);
  if (weight) tape.save(node, weight);
  if (bias) tape.save(node, bias);  // named by the formula, though nothing is computed from it
  tape.attach(node, result);
  return result;
}

Tensor fused_rms_norm(const Tensor& x, const Tensor& weight, double eps) {
  return rms_norm_by(x.tape().node(rms_norm_rule, {&x, &weight}), x, weight, eps);
}

Tensor rms_norm_by(Node* node, const Tensor& x, const Tensor& weight, double eps, std::int64_t offset) {
  Tape& tape = x.tape();
  tape.save(node, x);
  tape.save(node, weight);
  Tensor result = tape.empty(OpKind::rms_norm, x.shape(), x.dtype());
  Shape rows = x.shape();
  rows.set_last({1, Sym::none});
  const Tensor rstd = tape.empty(OpKind::rms_norm, rows, x.dtype() == DType::f64 ? DType::f64 : DType::f32);
  tape.run(OpKind::rms_norm, {&x, &weight}, {&result, &rstd}, {eps, {offset, 0}});
  tape.save(node, rstd);
  tape.attach(node, result);
  return result;
}

}  // namespace ledger
