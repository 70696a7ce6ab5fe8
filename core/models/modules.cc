#include "core/models/modules.h"

namespace ledger {
namespace {

constexpr std::uint64_t kBlock = 64;         // bitsandbytes' default blocksize for 4-bit weights
constexpr std::uint64_t kNestedBlock = 256;  // and for their scales

}  // namespace

bool LinearPolicy::adapts(std::string_view name) const {
  if (rank == 0) return false;
  for (const std::string& target : targets) {
    if (target == "all-linear" || target == name) return true;
    const std::size_t before = name.size() - target.size();  // PEFT: key.endswith("." + target)
    if (name.size() > target.size() && name.ends_with(target) && name[before - 1] == '.') return true;
  }
  return false;
}

Tensor ModuleBuilder::make(const std::string& name, const Shape& shape, DType dtype, Parameter::Role role,
                           bool trainable) {
  if (units_ != nullptr) {
    Tensor trained;
    Tensor parameter = units_->parameter(name, shape, dtype, role, trainable, trained);
    if (trainable) trainable_.push_back(trained);
    return parameter;
  }
  Tensor parameter = tape_.parameter(name, shape, dtype, role, trainable);
  if (trainable) trainable_.push_back(parameter);
  return parameter;
}

Tensor ModuleBuilder::parameter(const std::string& path, const Shape& shape, Parameter::Role role, const char* leaf) {
  const Tape::Scope scope(tape_, leaf);
  return make(path + "." + leaf, shape, dtype_, role, policy_.rank == 0 && !policy_.frozen && !frozen_);
}

Tensor ModuleBuilder::piece(const char* name, const Shape& shape, DType dtype) {
  const Tape::Scope scope(tape_, name);
  const Tape::In in(tape_, Category::weights);
  return tape_.empty(OpKind::quantise, shape, dtype);
}

Weight8bit ModuleBuilder::weight_8bit(const std::string& path, Dim out, Dim in) {
  const Tape::In weights(tape_, Category::weights);
  Weight8bit weight;
  {
    const Tape::Scope scope(tape_, "weight");
    weight.codes = tape_.empty(OpKind::int8_linear, {out, in}, DType::i8);
  }
  const Tape::Scope scope(tape_, "SCB");
  weight.scales = tape_.empty(OpKind::int8_linear, {out}, DType::f32);
  tape_.trace().parameters.push_back(
      {path + ".weight", weight.codes.impl()->storage->id, kNoStorage, Parameter::Role::matrix, false});
  tape_.run(OpKind::int8_linear, {}, {&weight.codes, &weight.scales});
  return weight;
}

Weight4bit ModuleBuilder::weight_4bit(const std::string& path, Dim out, Dim in) {
  const std::uint64_t elements = times(out.size, in.size);
  const std::uint64_t blocks = divide_up(elements, kBlock);
  Weight4bit weight;
  weight.out = out;
  weight.in = in;
  const Attr attr{0, {static_cast<std::int64_t>(tape_.trace().parameters.size()), static_cast<std::int64_t>(elements)}};
  const Bytes bytes = divide_up(elements, 2);
  if (units_ == nullptr) {
    weight.packed = piece("weight", {{bytes, Sym::none}, {1, Sym::none}}, DType::u8);
    tape_.trace().parameters.push_back(
        {path + ".weight", weight.packed.impl()->storage->id, kNoStorage, Parameter::Role::matrix, false});
  }
  make_quant_state(weight, blocks);
  if (units_ == nullptr) {
    quantise(weight, weight.packed, attr);
    return weight;
  }
  const Tape::Scope scope(tape_, "weight");
  const Weight4bit state = weight;
  weight.stored =
      units_->packed(path + ".weight", bytes, [state, attr](const Tensor& codes) { quantise(state, codes, attr); });
  return weight;
}

void ModuleBuilder::make_quant_state(Weight4bit& weight, std::uint64_t blocks) {
  weight.code = piece("quant_map", {{16, Sym::none}}, DType::f32);
  weight.absmax = piece("absmax", {{blocks, Sym::none}}, policy_.double_quant ? DType::u8 : DType::f32);
  if (!policy_.double_quant) return;
  weight.offset = piece("nested_offset", Shape{}, DType::f32);
  weight.absmax2 = piece("nested_absmax", {{divide_up(blocks, kNestedBlock), Sym::none}}, DType::f32);
  weight.code2 = piece("nested_quant_map", {{256, Sym::none}}, DType::f32);
}

void ModuleBuilder::quantise(const Weight4bit& weight, const Tensor& codes, const Attr& attr) {
  Tape& tape = codes.tape();
  if (!weight.absmax2) {
    tape.run(OpKind::quantise, {}, {&codes, &weight.absmax, &weight.code}, attr);
    return;
  }
  tape.run(OpKind::quantise, {}, {&codes, &weight.absmax, &weight.code, &weight.offset, &weight.absmax2, &weight.code2},
           attr);
}

Adapter ModuleBuilder::adapter(const std::string& path, Dim in, Dim out, Dim rank, std::uint64_t count) {
  const Dim r = count == 1 ? rank : Dim{times(rank.size, count), Sym::none};
  Adapter adapter;
  adapter.dropout = policy_.dropout;
  adapter.scaling = policy_.alpha / static_cast<double>(policy_.rank);
  const std::string peft = "base_model.model." + path;  // PeftModel's prefix, and its default adapter's name as suffix
  {
    const Tape::Scope scope(tape_, "lora_A");
    adapter.a = make(peft + ".lora_A.default.weight", {r, in}, policy_.adapter_dtype, Parameter::Role::matrix, true);
  }
  {
    const Tape::Scope scope(tape_, "lora_B");
    adapter.b = make(peft + ".lora_B.default.weight", {out, r}, policy_.adapter_dtype, Parameter::Role::matrix, true);
  }
  if (policy_.dora) {
    const Tape::Scope scope(tape_, "lora_magnitude_vector");
    adapter.magnitude =
        make(peft + ".lora_magnitude_vector.default.weight", {out}, policy_.adapter_dtype, Parameter::Role::bias, true);
  }
  return adapter;
}

Embedding Embedding::make(ModuleBuilder& builder, const std::string& path, const char* name, Dim count, Dim size,
                          Parameter::Role role) {
  const Tape::Scope scope(builder.tape(), name);
  return {name, builder.parameter(path + name, {count, size}, role)};
}

Tensor Embedding::forward(const Tensor& ids) const {
  const Tape::Scope scope(ids.tape(), name);
  return call_module(this, {&weight}, ids, [&](const Tensor& seen) { return embedding(weight, seen); });
}

}  // namespace ledger
