// adamw.cc - torch.optim.AdamW in its three implementations. Source: torch/optim/adam.py (2.14).

#include <cmath>

#include "core/training/optimizer.h"

namespace ledger {
namespace {

class AdamWStep : public OptimizerStep {
 public:
  void step(Tape& tape, const std::vector<Tensor>& parameters) override {
    const Tape::Scope scope(tape, "adamw");
    const Tape::NoGrad no_grad(tape);
    if (states_.empty()) make_states(tape, parameters);
    ++steps_;
    const Tape::In in(tape, Category::temporaries);
    update(tape, parameters);
  }

 protected:
  struct State {
    Tensor step, exp_avg, exp_avg_sq;
  };

  virtual bool step_on_device() const = 0;
  virtual void update(Tape& tape, const std::vector<Tensor>& parameters) = 0;

  void moments(Tape& tape, const std::vector<Tensor>& parameters) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      tape.run(OpKind::adamw_moments, {&parameters[i].grad()}, {&states_[i].exp_avg, &states_[i].exp_avg_sq});
    }
  }

  std::vector<State> states_;
  std::int64_t steps_ = 0;

 private:
  // _init_group: the step counter is a device scalar only for the fused kernel (and capturable); else it stays on the
  // host.
  void make_states(Tape& tape, const std::vector<Tensor>& parameters) {
    const Tape::In in(tape, Category::optimizer_states);
    states_.reserve(parameters.size());
    for (const Tensor& parameter : parameters) {
      State& state = states_.emplace_back();
      if (step_on_device()) {
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
};

// _fused_adam: one kernel, no temporaries.
class Fused : public AdamWStep {
  bool step_on_device() const override { return true; }
  void update(Tape& tape, const std::vector<Tensor>& parameters) override {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const State& state = states_[i];
      if (!parameters[i].grad()) continue;
      tape.run(OpKind::adamw, {&parameters[i].grad()},
               {&parameters[i], &state.exp_avg, &state.exp_avg_sq, &state.step});
    }
  }
};

// _multi_tensor_adam: exp_avg_sq_sqrt is a list as large as all states of a (device, dtype) group, alive at once.
class Foreach : public AdamWStep {
  bool step_on_device() const override { return false; }
  void update(Tape& tape, const std::vector<Tensor>& parameters) override {
    moments(tape, parameters);
    std::vector<Tensor> roots;
    roots.reserve(parameters.size());
    for (const State& state : states_) {
      roots.push_back(optimizer_temporary(state.exp_avg_sq, state.exp_avg_sq.dtype(), OpKind::foreach_sqrt));
    }
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      tape.run(OpKind::adamw_update, {&states_[i].exp_avg, &roots[i]}, {&parameters[i]}, {0, {steps_, 0}});
    }
  }
};

double power(double base, std::int64_t exponent) {
  double result = 1;
  for (std::int64_t i = 0; i < exponent; ++i)
    result *= base;
  return result;
}

// _single_tensor_adam: sqrt and its quotient, while the previous parameter's `denom` is still bound.
class ForLoop : public AdamWStep {
  bool step_on_device() const override { return false; }
  void update(Tape& tape, const std::vector<Tensor>& parameters) override {
    moments(tape, parameters);
    const double correction = std::sqrt(1 - power(tape.trace().adamw.beta2, steps_));
    Tensor denom;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const Tensor& square = states_[i].exp_avg_sq;
      Tensor root = optimizer_temporary(square, square.dtype(), OpKind::sqrt);
      Tensor quotient = div(root, correction);
      root.reset();
      denom = std::move(quotient);
      tape.run(OpKind::adamw_update, {&states_[i].exp_avg, &denom}, {&parameters[i]}, {0, {steps_, 1}});
    }
  }
};

}  // namespace

std::unique_ptr<OptimizerStep> make_adamw_fused() {
  return std::make_unique<Fused>();
}
std::unique_ptr<OptimizerStep> make_adamw_foreach() {
  return std::make_unique<Foreach>();
}
std::unique_ptr<OptimizerStep> make_adamw_forloop() {
  return std::make_unique<ForLoop>();
}

}  // namespace ledger
