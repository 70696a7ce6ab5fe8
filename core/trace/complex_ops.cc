// complex_ops.cc - complex numbers as rotary embeddings of DeepSeek V2 and Llama 4 use them: pairs along the last
// dimension, of the memory that complex64 takes. view_as_complex and view_as_real are views and so nothing here.
//
// Source: tools/autograd/derivatives.yaml (mul.Tensor); torch/csrc/autograd/FunctionsManual.cpp (mul_tensor_backward).

#include "core/trace/backward_rules.h"
#include "core/trace/operators.h"
#include "core/trace/strides.h"

namespace ledger {
namespace {

Tensor product(const Tensor& a, const Tensor& b, bool conjugate) {
  Tape& tape = a.tape();
  const auto strides = elementwise_strides(a.shape(), a);
  Tensor result = tape.empty(OpKind::complex_mul, a.shape(), a.dtype(), strides ? &*strides : nullptr);
  tape.run(OpKind::complex_mul, {&a, &b}, {&result}, {0, {conjugate ? 1 : 0, 0}});
  return result;
}

// grad * other.conj(): a lazy conjugate, which mul has written out first.
void complex_mul_rule(Node& node, const Gradients& in, Gradients& out) {
  const Tensor other = node.tape->unpack(node, 0);
  const Tensor gradient = contiguous(in[0]);  // view_as_real's own rule
  const Tensor conjugate = clone(other);
  out[0] = product(gradient, conjugate, true);
}

}  // namespace

Tensor polar(const Tensor& angles) {
  Tape& tape = angles.tape();
  Shape shape = angles.shape();
  shape.set_last({times(angles.dim(-1).size, 2), Sym::none});
  Tensor result = tape.empty(OpKind::polar, shape, angles.dtype());
  tape.run(OpKind::polar, {&angles}, {&result});
  return result;
}

Tensor complex_mul(const Tensor& a, const Tensor& b) {
  Node* node = a.tape().node(complex_mul_rule, {&a});
  a.tape().save(node, b);
  Tensor result = product(a, b, false);
  a.tape().attach(node, result);
  return result;
}

}  // namespace ledger
