#include "core/models/norms.h"

#include "core/trace/liger_ops.h"

namespace ledger {
namespace {

// x / rms(x), in x's dtype.
Tensor over_rms(const Tensor& x, double eps) {
  const Tensor variance = mean_last(pow(x, 2));
  return x * rsqrt(variance + eps);
}

Tensor rms_liger(const Norm& norm, const Tensor& x) {
  const bool gemma = norm.kind == NormKind::rms_gemma;
  return liger::rms_norm(x, norm.weight, {.eps = norm.eps, .in_place = norm.liger_in_place, .gemma = gemma});
}

// transformers models/llama/modeling_llama.py, LlamaRMSNorm.
Tensor rms(const Norm& norm, const Tensor& x) {
  Tensor hidden = to(x, DType::f32);
  hidden = over_rms(hidden, norm.eps);
  return norm.weight * to(hidden, x.dtype());
}

// transformers models/olmo2/modeling_olmo2.py, Olmo2RMSNorm.
Tensor rms_late(const Norm& norm, const Tensor& x) {
  Tensor hidden = to(x, DType::f32);
  hidden = over_rms(hidden, norm.eps);
  return to(norm.weight * hidden, x.dtype());
}

// transformers models/gemma/modeling_gemma.py, GemmaRMSNorm.
Tensor rms_gemma(const Norm& norm, const Tensor& x) {
  Tensor output = over_rms(to(x, DType::f32), norm.eps);
  output = output * (to(norm.weight, DType::f32) + 1.0);
  return to(output, x.dtype());
}

// transformers models/cohere/modeling_cohere.py, CohereLayerNorm: the mean is subtracted twice.
Tensor cohere(const Norm& norm, const Tensor& x) {
  Tensor hidden = to(x, DType::f32);
  const Tensor mean = mean_last(hidden);
  const Tensor variance = mean_last(pow(sub(hidden, mean), 2));
  Tensor scaled;
  {
    const Tensor centred = sub(hidden, mean);  // first, as Python does: C++ leaves the order of operands open
    scaled = centred * rsqrt(variance + norm.eps);
  }
  hidden = std::move(scaled);
  hidden = to(norm.weight, DType::f32) * hidden;
  return to(hidden, x.dtype());
}

Tensor layer(const Norm& norm, const Tensor& x) {
  return layer_norm(x, norm.weight, norm.bias, norm.eps);
}

// transformers models/olmo/modeling_olmo.py, OlmoLayerNorm.
Tensor bare(const Norm& norm, const Tensor& x) {
  return to(layer_norm(to(x, DType::f32), norm.weight, norm.bias, norm.eps), x.dtype());
}

// transformers models/t5/modeling_t5.py, T5LayerNorm.
Tensor rms_t5(const Norm& norm, const Tensor& x) {
  Tensor hidden;
  const Tensor variance = mean_last(pow(to(x, DType::f32), 2));
  hidden = x * rsqrt(variance + norm.eps);
  if (element_bytes(norm.weight.dtype()) == 2) hidden = to(hidden, norm.weight.dtype());
  return norm.weight * hidden;
}

}  // namespace

Norm Norm::make(ModuleBuilder& builder, const std::string& path, const char* name, NormKind kind, Dim size,
                double eps) {
  const Tape::Scope scope(builder.tape(), name);
  Norm norm;
  norm.name = name;
  norm.kind = kind;
  norm.eps = eps;
  norm.liger = builder.liger().on;
  norm.liger_in_place = builder.liger().norms_in_place;
  if (kind == NormKind::bare) return norm;
  norm.weight = builder.parameter(path + name, {size}, Parameter::Role::norm);
  if (kind == NormKind::layer) norm.bias = builder.parameter(path + name, {size}, Parameter::Role::bias, "bias");
  return norm;
}

Tensor Norm::forward(const Tensor& x) const {
  constexpr Tensor (*kForward[])(const Norm&, const Tensor&) = {rms, rms_gemma, rms_late, layer, cohere, bare, rms_t5};
  const Tape::Scope scope(x.tape(), name);
  const auto forward = liger ? rms_liger : kForward[static_cast<std::size_t>(kind)];
  return call_module(this, {&weight, &bias}, x, [&](const Tensor& seen) { return forward(*this, seen); });
}

}  // namespace ledger
