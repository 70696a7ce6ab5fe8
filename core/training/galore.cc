// galore.cc - GaLoreAdamW as transformers' Trainer runs it (optim="galore_adamw", optim_target_modules="all-linear"):
// moments of the decoder layers' matrices in a space of rank 128, those of everything else in full.
//
// Sources: galore_torch/adamw.py, galore_projector.py (2cc66f8); transformers trainer.py (rank 128, update_proj_gap
// 200, proj_type "std").

#include <algorithm>

#include "core/training/optimizer.h"

namespace ledger {
namespace {

constexpr std::uint64_t kRank = 128;

Tensor product(const Shape& shape, DType dtype, const Tensor& a, const Tensor& b) {
  Tape& tape = a.tape();
  Tensor result = tape.empty(OpKind::mm, shape, dtype);
  tape.ensure_cublas_workspace();
  optimizer_math({&a, &b}, {&result});
  return result;
}

class GaLore : public OptimizerStep {
 public:
  // The two parameter groups of the Trainer, the projected one last.
  void step(Tape& tape, const std::vector<Tensor>& parameters) override {
    const Tape::Scope scope(tape, "galore_adamw");
    const Tape::NoGrad no_grad(tape);
    const Tape::In in(tape, Category::temporaries);
    states_.resize(parameters.size());
    Names names;
    for (const bool projected : {false, true}) {
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        if (is_hidden_matrix(parameters[i]) == projected) step_one(parameters[i], projected, states_[i], names);
      }
    }
  }

 private:
  struct State {
    Tensor ortho_matrix, exp_avg, exp_avg_sq;
  };
  // Python names that outlive one turn of the loop.
  struct Names {
    Tensor grad, denom, norm_grad;
  };

  // get_orthogonal_matrix: singular vectors in fp32. Of a 16-bit gradient the first r are copied; of an fp32 one a view
  // stays, and with it the whole factor. Made at the first step and every 200 after.
  static Tensor make_projection(const Tensor& grad) {
    Tape& tape = grad.tape();
    const Dim m = grad.dim(0), n = grad.dim(1);
    const Dim k{std::min(m.size, n.size), Sym::none};
    const Dim r{std::min(kRank, k.size), Sym::none};
    const bool right = m.size >= n.size;
    const bool half = grad.dtype() != DType::f32;
    const Tensor matrix = half ? optimizer_temporary(grad, DType::f32, OpKind::to_copy) : grad;
    const Tensor u = optimizer_temporary(tape, {m, k}, DType::f32);
    const Tensor s = optimizer_temporary(tape, {k}, DType::f32);
    const Tensor vh = optimizer_temporary(tape, {k, n}, DType::f32);
    optimizer_math({&matrix}, {&u, &s, &vh});
    const Tensor& whole = right ? vh : u;
    if (!half) {
      tape.relabel(whole, Category::optimizer_states);
      return whole;
    }
    const Tape::In in(tape, Category::optimizer_states);
    const Tape::Scope name(tape, "ortho_matrix");
    Tensor kept = tape.empty(OpKind::to_copy, right ? Shape{r, n} : Shape{m, r}, grad.dtype());
    optimizer_math({&whole}, {&kept});
    return kept;
  }

  static Shape projected_shape(const Shape& shape) {
    const Dim r{std::min({kRank, shape[0].size, shape[1].size}), Sym::none};
    return shape[0].size >= shape[1].size ? Shape{shape[0], r} : Shape{r, shape[1]};
  }

  static void make_moments(State& state, const Tensor& grad) {
    Tape& tape = grad.tape();
    const Tape::In in(tape, Category::optimizer_states);
    {
      const Tape::Scope name(tape, "exp_avg");
      state.exp_avg = zeros_like(grad);
    }
    const Tape::Scope name(tape, "exp_avg_sq");
    state.exp_avg_sq = zeros_like(grad);
  }

  static void step_one(const Tensor& parameter, bool projected, State& state, Names& names) {
    names.grad = parameter.grad();
    const Shape whole = names.grad.shape();
    const DType dtype = names.grad.dtype();
    if (projected) {
      if (!state.ortho_matrix) state.ortho_matrix = make_projection(names.grad);
      names.grad = product(projected_shape(whole), dtype, names.grad, state.ortho_matrix);
    }
    if (!state.exp_avg) make_moments(state, names.grad);
    optimizer_math({&names.grad}, {&state.exp_avg, &state.exp_avg_sq});
    names.denom = optimizer_temporary(state.exp_avg_sq, dtype, OpKind::sqrt);
    names.norm_grad = optimizer_temporary(state.exp_avg, dtype, OpKind::div);
    if (projected) {
      const Tensor full_rank_grad = product(whole, dtype, names.norm_grad, state.ortho_matrix);
      names.norm_grad = optimizer_temporary(full_rank_grad, dtype, OpKind::mul_scalar);
    }
    optimizer_math({&names.norm_grad}, {&parameter});
  }

  std::vector<State> states_;
};

}  // namespace

std::unique_ptr<OptimizerStep> make_galore_adamw() {
  return std::make_unique<GaLore>();
}

}  // namespace ledger
