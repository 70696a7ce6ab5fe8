#include "core/models/linear.h"

#include <vector>

#include "core/models/modules.h"
#include "core/models/parameter_units.h"

namespace ledger {
namespace {

Tensor transposed(const Tensor& weight) {
  return transpose(weight, 0, 1);
}

void matmul_4bit_backward(Node& node, const Gradients& in, Gradients& out) {
  // The packed weight and the pieces of its quantisation state; nothing else is needed to make the weight again.
  std::array<Tensor, kMaxSaved> saved;
  for (std::size_t i = 0; i < node.saved_count; ++i)
    saved[i] = node.tape->unpack(node, i);
  const bool nested = node.attr.i[0] != 0;
  Weight4bit weight;
  weight.out = in[0].dim(-1);
  weight.in = node.input_shape.last();
  weight.original = static_cast<DType>(node.attr.i[1]);
  weight.packed = saved[0];
  weight.absmax = saved[1];
  weight.code = saved[2];
  if (nested) {
    weight.offset = saved[3];
    weight.absmax2 = saved[4];
    weight.code2 = saved[5];
  }
  Tensor dequantised = to(weight.dequantise(), in[0].dtype());
  const Tensor no_bias;
  out[0] = linear(in[0], transposed(dequantised), no_bias);
}

// Up to four rows bitsandbytes always takes its fused kernel, which decodes the weight on the way and stores none. For
// more rows it weighs by card and shape (backends/cuda/ops.py, _gemm_4bit_use_custom_cuda); we count the stored weight.
constexpr std::uint64_t kFusedRows = 4;

bool takes_fused_kernel(const Tensor& x, const Weight4bit& weight) {
  return x.shape().numel() / x.dim(-1).size <= kFusedRows && weight.in.size % 64 == 0;
}

Tensor gemm_4bit(const Tensor& x, const Weight4bit& weight, const Tensor& bias) {
  Shape shape = x.shape();
  shape.set_last(weight.out);
  Tensor result = x.tape().empty(OpKind::gemm_4bit, shape, x.dtype());
  const Tensor codes = weight.codes();
  std::vector<const Tensor*> inputs = {&x, &codes, &weight.absmax, &weight.code};
  if (weight.absmax2) inputs.insert(inputs.end(), {&weight.offset, &weight.absmax2, &weight.code2});
  if (bias) inputs.push_back(&bias);
  const Tensor* output = &result;
  x.tape().run(OpKind::gemm_4bit, inputs, {&output, 1});
  return result;
}

Tensor product_4bit(const Tensor& x, const Weight4bit& weight, const Tensor& bias) {
  if (takes_fused_kernel(x, weight)) return gemm_4bit(x, weight, bias);
  const Tensor dequantised = to(weight.dequantise(), x.dtype());
  return linear(x, dequantised, bias);
}

// MatMul4Bit.apply: saves the packed weight and its state, neither the input nor a 16-bit weight.
Tensor matmul_4bit(const Tensor& x, const Weight4bit& weight, const Tensor& bias) {
  Tape& tape = x.tape();
  Node* node = tape.node(matmul_4bit_backward, {&x});
  if (node != nullptr) node->attr.i = {weight.absmax2 ? 1 : 0, static_cast<std::int64_t>(weight.original)};
  Tensor result;
  {
    const Tape::NoGrad no_grad(tape);
    result = product_4bit(x, weight, bias);
  }
  const Tensor codes = weight.codes();
  for (const Tensor* part : {&codes, &weight.absmax, &weight.code, &weight.offset, &weight.absmax2, &weight.code2}) {
    if (*part) tape.save(node, *part);
  }
  if (node != nullptr) result = tape.detach(result);
  tape.attach(node, result);
  return result;
}

}  // namespace

Tensor Weight4bit::codes() const {
  return stored ? as_bytes(stored, divide_up(times(out.size, in.size), 2)) : packed;
}

Tensor Weight4bit::dequantise() const {
  Tape& tape = code.tape();
  const Tape::NoGrad no_grad(tape);
  Tensor scales = absmax;
  if (absmax2) {
    scales = tape.empty(OpKind::dequantise_absmax, absmax.shape(), DType::f32);
    tape.run(OpKind::dequantise_absmax, {&absmax, &absmax2, &code2}, {&scales});
    add_inplace(scales, offset);
  }
  Tensor result = tape.empty(OpKind::dequantise, {out, in}, original);
  const Tensor packed_codes = codes();
  tape.run(OpKind::dequantise, {&packed_codes, &scales, &code}, {&result});
  return result;
}

Linear Linear::make(ModuleBuilder& builder, const std::string& path, const char* name, Dim in, Dim out, bool bias,
                    Product product, Base base) {
  Tape& tape = builder.tape();
  const Tape::Scope scope(tape, name);
  const LinearPolicy& policy = builder.policy();
  const std::string full = path + name;
  const bool output_layer = path.empty();  // lm_head: PEFT's all-linear and bitsandbytes both leave it alone
  Linear linear;
  linear.name = name;
  const bool converts = !output_layer && base == Base::as_policy;
  if (policy.quantise && converts) {
    linear.quantised = builder.weight_4bit(full, out, in);
  } else if (policy.int8 && converts) {
    linear.int8 = builder.weight_8bit(full, out, in);
  } else {
    linear.product = product;
    const Shape shape = product == Product::conv1d ? Shape{in, out} : Shape{out, in};
    linear.weight = builder.parameter(full, shape, Parameter::Role::matrix);
  }
  if (bias) linear.bias = builder.parameter(full, {out}, Parameter::Role::bias, "bias");
  if (!output_layer && builder.adapts(full)) linear.adapter = builder.adapter(full, in, out);
  return linear;
}

Tensor Linear::base(const Tensor& x) const {
  if (int8) return matmul_8bit(x, *int8, bias);
  if (!quantised) {
    constexpr Tensor (*kProducts[])(const Tensor&, const Tensor&, const Tensor&) = {
        linear, conv1d, linear_by_matmul, linear_float8, linear_float8_keeping_weight};
    const auto forward = kProducts[static_cast<std::size_t>(product)];
    return call_module(this, {&weight, &bias}, x, [&](const Tensor& seen) { return forward(seen, weight, bias); });
  }
  return call_module(this, {&quantised->stored, &bias}, x, [&](const Tensor& seen) { return base_4bit(seen); });
}

// Linear4bit.forward: the input in the compute dtype, the result back in the input's.
Tensor Linear::base_4bit(const Tensor& x) const {
  const Tensor input = to(x, DType::bf16);
  if (bias && bias.dtype() != DType::bf16) {
    const Tape::NoGrad no_grad(x.tape());
    const Tape::In in(x.tape(), Category::weights);
    bias = to(bias, DType::bf16);
  }
  return to(matmul_4bit(input, *quantised, bias), x.dtype());
}

Tensor Linear::forward(const Tensor& x) const {
  const Tape::Scope scope(x.tape(), name);
  if (!adapter) return base(x);
  enter_module(&*adapter, x);  // PEFT's layer around it
  Tensor result = base(x);
  if (int8) {
    result = with_lora_8bit(x, result);
  } else {
    result = quantised ? with_lora_4bit(x, std::move(result)) : with_lora(x, std::move(result));
  }
  leave_module(&*adapter, result);
  return result;
}

namespace {

// lora_B(lora_A(dropout(x))) * scaling, each temporary gone as soon as the next is made.
Tensor delta(const Adapter& adapter, const Tensor& x) {
  const Tensor no_bias;
  Tensor t;
  {
    const Tape::Scope scope(x.tape(), "lora_A");
    const Tensor dropped = dropout(x, adapter.dropout);
    t = call_module(&adapter.a, {&adapter.a}, dropped,
                    [&](const Tensor& seen) { return linear(seen, adapter.a, no_bias); });
  }
  {
    const Tape::Scope scope(x.tape(), "lora_B");
    t = call_module(&adapter.b, {&adapter.b}, t, [&](const Tensor& seen) { return linear(seen, adapter.b, no_bias); });
  }
  return t * adapter.scaling;
}

}  // namespace

// peft lora/layer.py, Linear.forward.
Tensor Linear::with_lora(const Tensor& x, Tensor result) const {
  const DType dtype = result.dtype();
  const Tensor cast = to(x, adapter->a.dtype());
  if (adapter->magnitude) {
    result = with_dora(cast, result);
  } else {
    result = result + delta(*adapter, cast);
  }
  return to(result, dtype);
}

// peft lora/bnb.py, Linear4bit.forward: the result is cloned first. It asks torch.is_autocast_enabled() whether to cast
// by hand; the reference traces ran where the answer is no (see docs/accuracy.md), which costs o_proj one more 16-bit
// copy.
Tensor Linear::with_lora_4bit(const Tensor& x, Tensor result) const {
  result = clone(result);
  const DType dtype = result.dtype();
  const Tensor cast = to(x, adapter->a.dtype());
  if (adapter->magnitude) return to(with_dora(cast, result), dtype);
  const Tensor output = to(delta(*adapter, cast), dtype);
  return result + output;
}

// peft lora/bnb.py, Linear8bitLt.forward: as for 4 bits, without the clone.
Tensor Linear::with_lora_8bit(const Tensor& x, const Tensor& result) const {
  const DType dtype = result.dtype();
  const Tensor cast = to(x, adapter->a.dtype());
  const Tensor output = to(delta(*adapter, cast), dtype);
  return result + output;
}

// The adapter's two products, each a call of a module of its own.
Tensor Linear::lora_result(const Tensor& x) const {
  const Tensor no_bias;
  const auto call = [&](const Tensor& own, const Tensor& input) {
    return call_module(&own, {&own}, input, [&](const Tensor& seen) { return linear(seen, own, no_bias); });
  };
  return call(adapter->b, call(adapter->a, x));
}

// peft lora/dora.py, DoraLinearLayer: magnitude over the norm of W + scaling B A, whose product is made by sending an
// identity matrix through the adapter; its graph dies with this function. [1, out]
Tensor Linear::dora_scale(const Tensor& x) const {
  Tape& tape = x.tape();
  const Tape::Scope scope(tape, "lora_magnitude_vector");
  ModuleHooks* const hooks = tape.module_hooks();
  if (hooks != nullptr) hooks->read_elsewhere(adapter->a);  // for its shape
  const Tensor identity = eye(tape, adapter->a.dim(1), x.dtype());
  const Tensor lora_weight = transpose(lora_result(identity), 0, 1);
  if (hooks != nullptr) hooks->read_elsewhere(quantised ? quantised->stored : weight);
  Tensor weight_norm;
  const Tensor whole = to(quantised ? quantised->dequantise() : weight, x.dtype());
  {
    const Tensor detached = tape.detach(lora_weight);
    Tensor sum = detached * adapter->scaling;
    sum = whole + sum;
    weight_norm = row_norm(sum);
  }
  const Tensor scale = div(adapter->magnitude, weight_norm);
  return view(scale, {{1, Sym::none}, scale.dim(0)});
}

// peft lora/variants.py, DoraLinearVariant.forward: without dropout the base result is reused.
Tensor Linear::with_dora(const Tensor& x, const Tensor& result) const {
  const Tensor dropped = dropout(x, adapter->dropout);
  const Tensor dora = call_module(&adapter->magnitude, {&adapter->magnitude}, dropped,
                                  [&](const Tensor& seen) { return dora_result(seen, result); });
  return result + dora;
}

Tensor Linear::dora_result(const Tensor& x, const Tensor& result) const {
  const Tensor no_bias;
  const Tensor scale = dora_scale(x);
  const Tensor adapted = lora_result(x);
  const Tensor base_result =
      adapter->dropout == 0 ? result : linear(x, quantised ? quantised->dequantise() : weight, no_bias);
  Tensor first = add(scale, -1.0);
  first = first * base_result;
  Tensor second = scale * adapted;
  second = second * adapter->scaling;
  return first + second;
}

}  // namespace ledger
