// linear.h - linear layers: plain, with a LoRA or DoRA adapter, with a 4-bit base, and of int8 weights.
//
// Sources: torch.nn.Linear; peft tuners/lora/{layer,bnb,dora,variants}.py; bitsandbytes nn/modules.py Linear4bit and
// autograd/_functions.py MatMul4Bit.
#pragma once

#include <optional>
#include <string>

#include "core/trace/operators.h"

namespace ledger {

class ModuleBuilder;

// A frozen NF4 weight as bitsandbytes stores it, in blocks of 64. Source: bitsandbytes functional.py quantize_4bit.
struct Weight4bit {
  Dim out, in;
  DType original = DType::bf16;   // dtype that dequantising gives back
  Tensor packed;                  // uint8 [ceil(out*in / 2), 1]; where it is sharded, empty
  Tensor stored;                  // and this has it, as parameter_units.h says
  Tensor absmax, code;            // per block; 16 values
  Tensor offset, absmax2, code2;  // double quantisation of absmax: empty without it

  Tensor codes() const;

  // The whole weight again, [out, in], a temporary of `original` dtype.
  Tensor dequantise() const;
};

// A frozen LLM.int8 weight: a byte an element and a scale a row. Source: bitsandbytes nn/modules.py Int8Params.
struct Weight8bit {
  Tensor codes, scales;  // int8 [out, in]; fp32 [out]
};

// MatMul8bitLt.apply. Columns of outliers, which depend on the data, are taken to be none (linear_8bit.cc).
Tensor matmul_8bit(const Tensor& x, const Weight8bit& weight, const Tensor& bias);

struct Adapter {
  Tensor a, b;         // [r, in], [out, r]
  Tensor magnitude;    // DoRA: [out]
  double scaling = 1;  // alpha / r
  double dropout = 0;
};

enum class Product : std::uint8_t {
  linear,  // nn.Linear
  conv1d,  // GPT-2's Conv1D: the weight is [in, out]
  matmul,  // Falcon's: x @ W.T + bias
  float8,  // torchao's Float8Linear, uncompiled; until July 2025 it kept the weight's float8 form
  float8_keeping_weight,
};

// x [.., in] times weight [out, in], both of them in float8; as linear(), without a bias.
Tensor linear_float8(const Tensor& x, const Tensor& weight, const Tensor& bias);
Tensor linear_float8_keeping_weight(const Tensor& x, const Tensor& weight, const Tensor& bias);

struct Linear {
  const char* name = "";
  Product product = Product::linear;
  Tensor weight;        // [out, in]
  mutable Tensor bias;  // [out] or empty; a 4-bit layer turns it into its compute dtype when it first runs
  std::optional<Weight4bit> quantised;
  std::optional<Weight8bit> int8;
  std::optional<Adapter> adapter;

  // An unquantised one stays as it was loaded whatever becomes of the others.
  enum class Base : std::uint8_t { as_policy, unquantised };
  static Linear make(ModuleBuilder& builder, const std::string& path, const char* name, Dim in, Dim out, bool bias,
                     Product product = Product::linear, Base base = Base::as_policy);
  Tensor forward(const Tensor& x) const;  // x [.., in] -> [.., out]

 private:
  Tensor base(const Tensor& x) const;
  Tensor base_4bit(const Tensor& x) const;
  Tensor with_lora(const Tensor& x, Tensor result) const;
  Tensor with_lora_8bit(const Tensor& x, const Tensor& result) const;
  Tensor with_lora_4bit(const Tensor& x, Tensor result) const;
  Tensor lora_result(const Tensor& x) const;
  Tensor dora_scale(const Tensor& x) const;
  Tensor dora_result(const Tensor& x, const Tensor& result) const;
  Tensor with_dora(const Tensor& x, const Tensor& result) const;
};

}  // namespace ledger
