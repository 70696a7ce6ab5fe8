// linear_float8.cc - torchao's Float8Linear in eager mode, scaled by each tensor's largest element. Sizes only; no
// executor computes it.
//
// Sources: torchao float8/float8_linear.py (matmul_with_hp_or_float8_args), float8_scaling_utils.py, float8_utils.py,
// float8_tensor.py, float8_ops.py (preprocess_addmm): 463a87274 (January 2025) and f5b55675f (July 2025), from which on
// the weight is saved as it is and cast again in backward.
#include "core/models/linear.h"

namespace ledger {
namespace {

Tensor float8_step(OpKind op, const Tensor& from, const Shape& shape, DType dtype) {
  Tensor result = from.tape().empty(op, shape, dtype);
  from.tape().run(op, {&from}, {&result});
  return result;
}

struct Float8 {
  Tensor bits, scale;  // u8, fp32 scalar
};

// tensor_to_scale: max(abs(x)), and its reciprocal in fp64.
Tensor scale_of(const Tensor& x) {
  Tensor amax;
  {
    const Tensor magnitudes = float8_step(OpKind::absolute, x, x.shape(), x.dtype());
    amax = float8_step(OpKind::largest, magnitudes, Shape{}, x.dtype());
  }
  amax = float8_step(OpKind::float8, amax, Shape{}, DType::f64);
  {
    const Tensor limited = float8_step(OpKind::float8, amax, Shape{}, DType::f64);
    amax = float8_step(OpKind::float8, limited, Shape{}, DType::f64);
  }
  return float8_step(OpKind::float8, amax, Shape{}, DType::f32);
}

// hp_tensor_to_float8_dynamic: scaled in fp32, and clamped in a tensor of its own.
Float8 float8_of(const Tensor& x) {
  Float8 result;
  result.scale = scale_of(x);
  Tensor scaled;
  {
    const Tensor wide = to(x, DType::f32);
    scaled = float8_step(OpKind::float8, wide, x.shape(), DType::f32);
  }
  const Tensor clamped = float8_step(OpKind::float8, scaled, x.shape(), DType::f32);
  result.bits = float8_step(OpKind::float8, clamped, x.shape(), DType::u8);
  return result;
}

// What the product wants the other way round, it copies.
Tensor copy_of(const Tensor& bits) {
  return float8_step(OpKind::float8, bits, bits.shape(), DType::u8);
}

Tensor scaled_mm(const Tensor& a, const Tensor& b, DType dtype) {
  Tensor result = a.tape().empty(OpKind::mm, {a.dim(0), b.dim(1)}, dtype);
  a.tape().run(OpKind::mm, {&a, &b}, {&result});
  return result;
}

Tensor in_rows(const Tensor& x) {
  return reshape(x, {{x.shape().numel() / x.dim(-1).size, Sym::none}, x.dim(-1)});
}

// Three products' operands: of the gradient a cast for each of two, though they are the same.
void linear_float8_backward(Node& node, const Gradients& in, Gradients& out) {
  Tape& tape = *node.tape;
  const Tensor x = tape.unpack(node, 0);
  Float8 weight{tape.unpack(node, 1), Tensor()};
  const bool kept = node.attr.i[0] != 0;
  if (kept) weight.scale = tape.unpack(node, 2);
  const Tensor gradient = in_rows(in[0]);
  const Float8 for_input = float8_of(gradient);
  if (!kept) weight = float8_of(weight.bits);
  {
    const Tensor columns = copy_of(weight.bits);
    out[0] = scaled_mm(for_input.bits, columns, in[0].dtype());
  }
  out[0] = view(out[0], x.shape());
  const Float8 for_weight = float8_of(gradient);
  const Float8 input = float8_of(in_rows(x));
  const Tensor rows = copy_of(transpose(for_weight.bits, 0, 1));
  const Tensor columns = copy_of(input.bits);
  out[1] = scaled_mm(rows, columns, in[0].dtype());
}

Tensor float8_product(const Tensor& x, const Tensor& weight, bool keeps_weight) {
  Tape& tape = x.tape();
  Node* const node = tape.node(linear_float8_backward, {&x, &weight});
  if (node != nullptr) node->attr.i[0] = keeps_weight ? 1 : 0;
  Float8 kept;
  Tensor result;
  {
    const Tape::NoGrad no_grad(tape);
    if (keeps_weight) kept = float8_of(weight);
    const Float8 input = float8_of(x), other = keeps_weight ? kept : float8_of(weight);
    result = scaled_mm(in_rows(input.bits), transpose(other.bits, 0, 1), x.dtype());
    Shape shape = x.shape();
    shape.set_last(weight.dim(0));
    result = view(result, shape);
  }
  tape.save(node, x);
  tape.save(node, keeps_weight ? kept.bits : weight);
  if (keeps_weight) tape.save(node, kept.scale);
  tape.attach(node, result);
  return result;
}

}  // namespace

Tensor linear_float8(const Tensor& x, const Tensor& weight, const Tensor&) {
  return float8_product(x, weight, false);
}

Tensor linear_float8_keeping_weight(const Tensor& x, const Tensor& weight, const Tensor&) {
  return float8_product(x, weight, true);
}

}  // namespace ledger
