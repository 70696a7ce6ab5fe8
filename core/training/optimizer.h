// optimizer.h - gradient clipping and the optimizer step, as torch.optim runs them on parameter lists.
#pragma once

#include <vector>

#include "core/config/recipe.h"
#include "core/trace/operators.h"

namespace ledger {

// torch.nn.utils.clip_grad_norm_(parameters, max_norm, foreach=True): a norm per gradient, their norm, an in-place scale.
// Source: torch/nn/utils/clip_grad.py (2.14).
void clip_grad_norm(Tape& tape, const std::vector<Tensor>& parameters, double max_norm);

// One optimizer; its states are made lazily, at the first step, in the parameters' dtype.
class FusedAdamW {
 public:
  // Source: torch/optim/adam.py, _init_group and _fused_adam (no temporaries).
  void step(Tape& tape, const std::vector<Tensor>& parameters);

 private:
  struct State {
    Tensor step, exp_avg, exp_avg_sq;
  };
  std::vector<State> states_;
};

}  // namespace ledger
