#include "core/training/optimizer.h"

namespace ledger {
namespace {

Tensor total_norm(Tape& tape, const std::vector<Tensor>& parameters) {
  std::vector<Tensor> norms;
  norms.reserve(parameters.size());
  for (const Tensor& parameter : parameters) {
    if (parameter.grad()) norms.push_back(vector_norm(parameter.grad()));
  }
  if (norms.empty()) return zeros(tape, Shape{}, DType::f32);
  return vector_norm(stack(norms, Sym::none));
}

}  // namespace

void clip_grad_norm(Tape& tape, const std::vector<Tensor>& parameters, double max_norm) {
  const Tape::Scope scope(tape, "clip_grad_norm");
  const Tape::In in(tape, Category::temporaries);
  const Tape::NoGrad no_grad(tape);
  const Tensor norm = total_norm(tape, parameters);
  Tensor coefficient = reciprocal(norm + 1e-6) * max_norm;
  coefficient = clamp_max(coefficient, 1.0);
  for (const Tensor& parameter : parameters) {
    if (parameter.grad()) mul_inplace(parameter.grad(), coefficient);
  }
}

void FusedAdamW::step(Tape& tape, const std::vector<Tensor>& parameters) {
  const Tape::Scope scope(tape, "adamw");
  const Tape::NoGrad no_grad(tape);
  if (states_.empty()) {
    const Tape::In in(tape, Category::optimizer_states);
    states_.reserve(parameters.size());
    for (const Tensor& parameter : parameters) {
      State& state = states_.emplace_back();
      {
        const Tape::Scope name(tape, "step");
        state.step = zeros(tape, Shape{}, DType::f32);
      }
      {
        const Tape::Scope name(tape, "exp_avg");
        state.exp_avg = zeros_like(parameter);
      }
      const Tape::Scope name(tape, "exp_avg_sq");
      state.exp_avg_sq = zeros_like(parameter);
    }
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const State& state = states_[i];
    if (!parameters[i].grad()) continue;
    tape.run(OpKind::adamw, {&parameters[i].grad()}, {&parameters[i], &state.exp_avg, &state.exp_avg_sq, &state.step});
  }
}

}  // namespace ledger
