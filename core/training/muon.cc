// muon.cc - torch.optim.Muon for the decoder layers' matrices, fused AdamW for everything else, as its documentation
// asks. Source: torch/optim/_muon.py (2.9 and later), _single_tensor_muon and _zeropower_via_newtonschulz.

#include <algorithm>

#include "core/training/optimizer.h"

namespace ledger {
namespace {

constexpr int kNewtonSchulzSteps = 5;

// The orthogonalised update, in bf16: five rounds of X X^T, its polynomial, and their product with X. `gradient` is
// held by the caller throughout.
Tensor orthogonalised(const Tensor& gradient) {
  Tape& tape = gradient.tape();
  const Dim rows = gradient.dim(0), columns = gradient.dim(1);
  const Dim least = rows.size > columns.size ? columns : rows;
  Tensor ortho_grad =
      gradient.dtype() == DType::bf16 ? gradient : optimizer_temporary(gradient, DType::bf16, OpKind::to_copy);
  optimizer_math({&ortho_grad}, {&ortho_grad});  // div_ by its norm
  const auto product = [&](OpKind op, const Shape& shape, const Tensor& a, const Tensor& b) {
    Tensor result = tape.empty(op, shape, DType::bf16);
    tape.ensure_cublas_workspace();
    optimizer_math({&a, &b}, {&result});
    return result;
  };
  Tensor gram_matrix, gram_update;
  for (int step = 0; step < kNewtonSchulzSteps; ++step) {
    gram_matrix = product(OpKind::mm, {least, least}, ortho_grad, ortho_grad);
    gram_update = product(OpKind::addmm, {least, least}, gram_matrix, gram_matrix);
    ortho_grad = product(OpKind::addmm, gradient.shape(), gram_update, ortho_grad);
  }
  return ortho_grad;
}

class Muon : public OptimizerStep {
 public:
  void step(Tape& tape, const std::vector<Tensor>& parameters) override {
    if (matrices_.empty() && others_.empty()) {
      for (const Tensor& parameter : parameters)
        (is_hidden_matrix(parameter) ? matrices_ : others_).push_back(parameter);
    }
    step_matrices(tape);
    if (!others_.empty()) adamw_->step(tape, others_);
  }

 private:
  void step_matrices(Tape& tape) {
    const Tape::Scope scope(tape, "muon");
    const Tape::NoGrad no_grad(tape);
    if (momentum_.empty()) {
      const Tape::In in(tape, Category::optimizer_states);
      const Tape::Scope name(tape, "momentum_buffer");
      for (const Tensor& parameter : matrices_)
        momentum_.push_back(zeros_like(parameter.grad()));
    }
    const Tape::In in(tape, Category::temporaries);
    Tensor update;  // the previous parameter's, until it is bound again
    for (std::size_t i = 0; i < matrices_.size(); ++i) {
      const Tensor& gradient = matrices_[i].grad();
      optimizer_math({&gradient}, {&momentum_[i]});              // lerp_
      update = optimizer_temporary(gradient, gradient.dtype());  // lerp
      update = orthogonalised(update);
      optimizer_math({&update}, {&matrices_[i]});  // mul_, add_
    }
  }

  std::vector<Tensor> matrices_, others_, momentum_;
  std::unique_ptr<OptimizerStep> adamw_ = make_adamw_fused();
};

}  // namespace

std::unique_ptr<OptimizerStep> make_muon() {
  return std::make_unique<Muon>();
}

}  // namespace ledger
