// modules.h - the building blocks of models, composed as Hugging Face transformers composes them.
#pragma once

#include <string>
#include <vector>

#include "core/trace/operators.h"

namespace ledger {

// Creates a model's parameters in the framework's order and remembers them.
class ModuleBuilder {
 public:
  ModuleBuilder(Tape& tape, DType dtype) : tape_(tape), dtype_(dtype) {}

  // `path` is the module's name in state dicts; the scope of ledger lines is the tape's, with layer numbers starred out.
  Tensor parameter(const std::string& path, const Shape& shape, Parameter::Role role, const char* leaf = "weight");

  Tape& tape() { return tape_; }
  std::vector<Tensor> take() { return std::move(parameters_); }

 private:
  Tape& tape_;
  DType dtype_;
  std::vector<Tensor> parameters_;
};

// nn.Linear. weight [out, in], bias [out] or empty.
struct Linear {
  const char* name = "";
  Tensor weight, bias;

  static Linear make(ModuleBuilder& builder, const std::string& path, const char* name, Dim in, Dim out, bool bias);
  Tensor forward(const Tensor& x) const;  // x [.., in] -> [.., out]
};

// The RMSNorm of transformers' Llama family: fp32 inside, the weight applied after the cast back.
// Source: transformers models/llama/modeling_llama.py, LlamaRMSNorm.
struct RmsNorm {
  const char* name = "";
  Tensor weight;  // [h]
  double eps = 1e-6;

  static RmsNorm make(ModuleBuilder& builder, const std::string& path, const char* name, Dim size, double eps);
  Tensor forward(const Tensor& x) const;
};

// nn.Embedding. weight [V, h].
struct Embedding {
  Tensor weight;

  static Embedding make(ModuleBuilder& builder, const std::string& path, const char* name, Dim count, Dim size);
  Tensor forward(const Tensor& ids) const;  // [b, s] -> [b, s, h]
};

}  // namespace ledger
