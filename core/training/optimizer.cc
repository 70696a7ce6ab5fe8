#include "core/training/optimizer.h"

#include <string_view>

#include "core/base/utf8.h"

namespace ledger {
namespace {

// Of shards each rank takes the norm of its own; DTensor's full_tensor() puts them together, FSDP1 an all-reduce. What
// tensor parallelism cuts is put together one by one, before norms are stacked.
Tensor total_norm(Tape& tape, const std::vector<Tensor>& parameters, NormOver over) {
  std::vector<Tensor> norms;
  norms.reserve(parameters.size());
  const bool tensor = tape.trace().mesh.size(Axis::tensor) > 1;
  for (const Tensor& parameter : parameters) {
    if (!parameter.grad()) continue;
    norms.push_back(vector_norm(parameter.grad()));
    const bool cut = tensor && parameter.impl()->parameter >= 0 && parameter_of(parameter).cut.piece != 0;
    const Tape::Among ranks(tape, RankGroup::tensor);
    if (cut) all_reduce(norms.back(), ReduceOp::norm);
  }
  const Tensor norm = norms.empty() ? zeros(tape, Shape{}, DType::f32) : vector_norm(stack(norms, Sym::none));
  if (over == NormOver::shards) all_reduce(norm, ReduceOp::norm);
  return norm;
}

struct OptimizerRow {
  Optimizer kind;
  std::unique_ptr<OptimizerStep> (*make)();
};

constexpr OptimizerRow kOptimizers[] = {
    {Optimizer::adamw_fused, make_adamw_fused},
    {Optimizer::adamw_foreach, make_adamw_foreach},
    {Optimizer::adamw_forloop, make_adamw_forloop},
    {Optimizer::sgd, make_sgd},
    {Optimizer::sgd_momentum, make_sgd_momentum},
    {Optimizer::adafactor_hf, make_adafactor_hf},
    {Optimizer::adafactor_torch, make_adafactor_torch},
    {Optimizer::lion, make_lion},
    {Optimizer::adamw_8bit, make_adamw_8bit},
    {Optimizer::paged_adamw_8bit, make_paged_adamw_8bit},
    {Optimizer::adamw_ao_8bit, make_adamw_ao_8bit},
    {Optimizer::adamw_ao_4bit, make_adamw_ao_4bit},
    {Optimizer::muon, make_muon},
    {Optimizer::galore_adamw, make_galore_adamw},
};

// "model.layers.11.mlp.up_proj.weight": lists of modules have numbers, and a model has no other lists than its layers.
bool in_a_layer(std::string_view name) {
  bool number = false;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const bool first = i == 0 || name[i - 1] == '.';
    number = is_digit(name[i]) && (first || number);
    if (number && i + 1 < name.size() && name[i + 1] == '.') return true;
  }
  return false;
}

}  // namespace

bool is_hidden_matrix(const Tensor& parameter) {
  if (parameter.rank() != 2) return false;
  const std::int32_t index = parameter.impl()->parameter;
  if (index < 0) return true;
  const Parameter& of = parameter.tape().trace().parameters[static_cast<std::size_t>(index)];
  return of.role != Parameter::Role::embedding && in_a_layer(of.name);
}

void clip_grad_norm(Tape& tape, const std::vector<Tensor>& parameters, double max_norm, NormOver over, NormOf of) {
  const Tape::Scope scope(tape, "clip_grad_norm");
  const Tape::In in(tape, Category::temporaries);
  const Tape::NoGrad no_grad(tape);
  const Tensor norm = total_norm(tape, parameters, over);
  if (of == NormOf::stage) {
    const Tape::Among stages(tape, RankGroup::pipeline);
    all_reduce(norm, ReduceOp::norm);
  }
  Tensor coefficient = reciprocal(norm + 1e-6) * max_norm;
  coefficient = clamp_max(coefficient, 1.0);
  for (const Tensor& parameter : parameters) {
    if (parameter.grad()) mul_inplace(parameter.grad(), coefficient);
  }
}

std::unique_ptr<OptimizerStep> make_optimizer(Optimizer kind) {
  for (const OptimizerRow& row : kOptimizers) {
    if (row.kind == kind) return row.make();
  }
  return nullptr;
}

void optimizer_math(std::initializer_list<const Tensor*> inputs, std::initializer_list<const Tensor*> outputs) {
  (*outputs.begin())->tape().run(OpKind::optimizer_math, inputs, outputs);
}

Tensor optimizer_temporary(const Tensor& a, DType dtype, OpKind op) {
  Tensor result = a.tape().empty(op, a.shape(), dtype);
  a.tape().run(op, {&a}, {&result});
  return result;
}

Tensor optimizer_temporary(Tape& tape, const Shape& shape, DType dtype) {
  Tensor result = tape.empty(OpKind::optimizer_math, shape, dtype);
  tape.run(OpKind::optimizer_math, {}, {&result});
  return result;
}

}  // namespace ledger
