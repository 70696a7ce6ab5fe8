// linear_8bit.cc - LLM.int8 products as bitsandbytes computes them on CUDA, without outlier columns.
//
// Sources: bitsandbytes 0.50 autograd/_functions.py MatMul8bitLt; backends/cuda/ops.py int8_vectorwise_quant,
// int8_linear_matmul, int8_mm_dequant; backends/default/ops.py int8_mixed_scaled_mm, int8_scaled_mm.

#include "core/models/linear.h"

namespace ledger {
namespace {

Tensor step(const Tensor& from, const Shape& shape, DType dtype) {
  Tensor result = from.tape().empty(OpKind::int8_linear, shape, dtype);
  from.tape().run(OpKind::int8_linear, {&from}, {&result});
  return result;
}

struct Rows8bit {
  Tensor codes, scales;  // int8 [T, in], fp32 [T]
};

// int8_vectorwise_quant(A.to(torch.float16), threshold): where values exceed the threshold is asked of every element.
Rows8bit quantise_rows(const Tensor& rows) {
  const Tensor half = to(rows, DType::f16);
  Rows8bit result;
  result.scales = step(half, {rows.dim(0)}, DType::f32);
  result.codes = step(half, rows.shape(), DType::i8);
  const Tensor outliers =
      step(step(half, rows.shape(), DType::f16), rows.shape(), DType::boolean);  // A.abs() >= threshold
  const Tensor any = step(outliers, Shape{}, DType::boolean);
  return result;
}

// int8_scaled_mm: the int32 product lives until its fp16 form has been cast to the input's dtype.
Tensor scaled_product(const Rows8bit& rows, const Weight8bit& weight, const Tensor& bias, DType dtype) {
  const Shape shape{rows.codes.dim(0), weight.codes.dim(0)};
  const Tensor product = step(rows.codes, shape, DType::i32);
  const Tensor half = step(product, shape, DType::f16);
  if (bias) add_inplace(half, bias);
  return to(half, dtype);
}

// grad @ (CB in the compute dtype * SCB / 127), the weight decoded into a copy.
void matmul_8bit_backward(Node& node, const Gradients& in, Gradients& out) {
  const Tensor codes = node.tape->unpack(node, 0), scales = node.tape->unpack(node, 1);
  const Tensor weight = step(codes, codes.shape(), node.input_dtype);
  const Tensor factors = scales * (1.0 / 127);
  node.tape->run(OpKind::int8_linear, {&factors}, {&weight});  // mul_
  const Tensor no_bias;
  out[0] = linear(to(in[0], node.input_dtype), transpose(weight, 0, 1), no_bias);
}

}  // namespace

Tensor matmul_8bit(const Tensor& x, const Weight8bit& weight, const Tensor& bias) {
  Tape& tape = x.tape();
  Node* node = tape.node(matmul_8bit_backward, {&x});
  Tensor result;
  {
    const Tape::NoGrad no_grad(tape);
    Shape rows_shape{{x.shape().numel() / x.dim(-1).size, Sym::none}, x.dim(-1)};
    if (x.rank() == 3 && x.dim(0).sym == Sym::b && x.dim(1).sym == Sym::s)
      rows_shape.set(0, {rows_shape[0].size, Sym::tokens});
    const Tensor rows = x.rank() == 3 ? reshape(x, rows_shape) : x;
    result = scaled_product(quantise_rows(rows), weight, bias, x.dtype());
    if (x.rank() == 3) result = view(result, {x.dim(0), x.dim(1), weight.codes.dim(0)});
  }
  tape.save(node, weight.codes);
  tape.save(node, weight.scales);
  tape.save(node, x);  // an attribute of the function's context, never read again
  if (node != nullptr) result = tape.detach(result);
  tape.attach(node, result);
  return result;
}

}  // namespace ledger
