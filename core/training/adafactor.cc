// adafactor.cc - Adafactor without first moment, transformers' and torch.optim's. Source of the first: transformers
// optimization.py (5.12), Adafactor.step.

#include "core/training/optimizer.h"

namespace ledger {
namespace {

class AdafactorHf : public OptimizerStep {
 public:
  void step(Tape& tape, const std::vector<Tensor>& parameters) override {
    const Tape::Scope scope(tape, "adafactor");
    const Tape::NoGrad no_grad(tape);
    const Tape::In in(tape, Category::temporaries);
    states_.resize(parameters.size());
    Names names;
    for (std::size_t i = 0; i < parameters.size(); ++i)
      step_one(tape, parameters[i], states_[i], names);
  }

 private:
  struct State {
    Tensor row, column;  // factored; 1-D parameters keep the whole second moment in `row`
    Tensor rms;          // state["RMS"], a scalar that each step makes anew
  };
  // Python names that outlive one turn of the loop, and with them the tensors of the previous parameter.
  struct Names {
    Tensor grad, data, update;
  };

  static Tensor fp32(const Tensor& a) {
    const bool half = a.dtype() == DType::bf16 || a.dtype() == DType::f16;
    return half ? optimizer_temporary(a, DType::f32, OpKind::to_copy) : a;
  }

  static void make_state(Tape& tape, const Tensor& grad, State& state) {
    if (state.row) return;
    const Tape::In in(tape, Category::optimizer_states);
    const bool factored = grad.rank() >= 2;
    Shape rows = grad.shape();
    if (factored) rows.rank = static_cast<std::uint8_t>(rows.rank - 1);
    {
      const Tape::Scope name(tape, factored ? "exp_avg_sq_row" : "exp_avg_sq");
      state.row = zeros(tape, rows, grad.dtype());
    }
    if (!factored) return;
    const Tape::Scope name(tape, "exp_avg_sq_col");
    state.column = zeros(tape, {grad.dim(-1)}, grad.dtype());
  }

  static Tensor scalar(Tape& tape) { return optimizer_temporary(tape, Shape{}, DType::f32); }

  static Tensor approximate(Tape& tape, const State& state, const Shape& shape) {
    const Tensor row_factor = optimizer_temporary(state.row, state.row.dtype());
    const Tensor column_factor = optimizer_temporary(state.column, state.column.dtype());
    Tensor product = tape.empty(OpKind::mul, shape, state.row.dtype());
    optimizer_math({&row_factor, &column_factor}, {&product});
    return product;
  }

  static void step_one(Tape& tape, const Tensor& parameter, State& state, Names& names) {
    names.grad = parameter.grad();
    names.grad = fp32(names.grad);
    make_state(tape, names.grad, state);
    names.data = parameter;
    names.data = fp32(names.data);
    {
      const Tape::In in(tape, Category::optimizer_states);
      const Tape::Scope name(tape, "RMS");
      state.rms = scalar(tape);
    }
    Tensor square = optimizer_temporary(names.grad, names.grad.dtype(), OpKind::pow_scalar);
    Tensor shifted = optimizer_temporary(square, square.dtype(), OpKind::add_scalar);
    square.reset();
    names.update = std::move(shifted);
    if (state.column) {
      const Shape& shape = names.grad.shape();
      names.update = approximate(tape, state, shape);
    } else {
      names.update = optimizer_temporary(state.row, state.row.dtype(), OpKind::rsqrt);
    }
    optimizer_math({&names.grad}, {&names.update});  // mul_, div_ by its RMS, mul_ by the learning rate
    const Tensor negative = optimizer_temporary(names.update, names.update.dtype(), OpKind::neg);
    optimizer_math({&negative}, {&names.data});
    if (names.data.impl() != parameter.impl()) copy_into(parameter, names.data);
  }

  std::vector<State> states_;
};

// torch.optim.Adafactor, for-loop implementation (its default). Source: torch/optim/_adafactor.py (2.14),
// _single_tensor_adafactor: the update is made in place of the variance estimate, beside the previous parameter's.
class AdafactorTorch : public OptimizerStep {
 public:
  void step(Tape& tape, const std::vector<Tensor>& parameters) override {
    const Tape::Scope scope(tape, "adafactor");
    const Tape::NoGrad no_grad(tape);
    if (states_.empty()) {
      for (const Tensor& parameter : parameters)
        make_state(tape, parameter.grad());
    }
    const Tape::In in(tape, Category::temporaries);
    Tensor update;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const Tensor& grad = parameters[i].grad();
      if (grad.rank() < 2) {
        const Tensor square = optimizer_temporary(grad, grad.dtype(), OpKind::pow_scalar);
        update = clone(states_[i].row);
      } else {
        update = outer(tape, states_[i], grad.shape());
      }
      optimizer_math({&update, &grad}, {&parameters[i]});
    }
  }

 private:
  struct State {
    Tensor row, column;  // 1-D parameters keep the whole variance in `row`
  };

  void make_state(Tape& tape, const Tensor& grad) {
    const Tape::In in(tape, Category::optimizer_states);
    State& state = states_.emplace_back();
    const bool factored = grad.rank() >= 2;
    Shape rows = grad.shape();
    if (factored) rows.set_last({1, Sym::none});
    {
      const Tape::Scope name(tape, factored ? "row_var" : "variance");
      state.row = zeros(tape, rows, grad.dtype());
    }
    if (!factored) return;
    const Tape::Scope name(tape, "col_var");
    state.column = zeros(tape, {{1, Sym::none}, grad.dim(-1)}, grad.dtype());
  }

  static Tensor outer(Tape& tape, const State& state, const Shape& shape) {
    Tensor product = tape.empty(OpKind::mm, shape, state.row.dtype());
    optimizer_math({&state.row, &state.column}, {&product});
    return product;
  }

  std::vector<State> states_;
};

}  // namespace

std::unique_ptr<OptimizerStep> make_adafactor_torch() {
  return std::make_unique<AdafactorTorch>();
}

std::unique_ptr<OptimizerStep> make_adafactor_hf() {
  return std::make_unique<AdafactorHf>();
}

}  // namespace ledger
