#include "core/models/modules.h"

namespace ledger {

Tensor ModuleBuilder::parameter(const std::string& path, const Shape& shape, Parameter::Role role, const char* leaf) {
  const Tape::Scope scope(tape_, leaf);
  parameters_.push_back(tape_.parameter(path + "." + leaf, shape, dtype_, role, true));
  return parameters_.back();
}

Linear Linear::make(ModuleBuilder& builder, const std::string& path, const char* name, Dim in, Dim out, bool bias) {
  const Tape::Scope scope(builder.tape(), name);
  const std::string full = path + name;
  Linear linear;
  linear.name = name;
  linear.weight = builder.parameter(full, {out, in}, Parameter::Role::matrix);
  if (bias) linear.bias = builder.parameter(full, {out}, Parameter::Role::bias, "bias");
  return linear;
}

Tensor Linear::forward(const Tensor& x) const {
  const Tape::Scope scope(x.tape(), name);
  return linear(x, weight, bias);
}

RmsNorm RmsNorm::make(ModuleBuilder& builder, const std::string& path, const char* name, Dim size, double eps) {
  const Tape::Scope scope(builder.tape(), name);
  RmsNorm norm;
  norm.name = name;
  norm.weight = builder.parameter(path + name, {size}, Parameter::Role::norm);
  norm.eps = eps;
  return norm;
}

Tensor RmsNorm::forward(const Tensor& x) const {
  const Tape::Scope scope(x.tape(), name);
  Tensor hidden = to(x, DType::f32);
  const Tensor variance = mean_last(pow(hidden, 2));
  hidden = hidden * rsqrt(variance + eps);
  return weight * to(hidden, x.dtype());
}

Embedding Embedding::make(ModuleBuilder& builder, const std::string& path, const char* name, Dim count, Dim size) {
  const Tape::Scope scope(builder.tape(), name);
  return {builder.parameter(path + name, {count, size}, Parameter::Role::matrix)};
}

Tensor Embedding::forward(const Tensor& ids) const {
  const Tape::Scope scope(ids.tape(), "embed_tokens");
  return embedding(weight, ids);
}

}  // namespace ledger
