// optimizer.h - gradient clipping and the optimizer step, as torch.optim and friends run them on parameter lists.
#pragma once

#include <memory>
#include <vector>

#include "core/config/recipe.h"
#include "core/trace/operators.h"

namespace ledger {

// Whether every rank has whole gradients, or shards of them; and whether it has all parameters, or a pipeline's stage
// (torchtitan's clip_grad_norm_: pp_mesh).
enum class NormOver : std::uint8_t { gradients, shards };
enum class NormOf : std::uint8_t { model, stage };

// torch.nn.utils.clip_grad_norm_(parameters, max_norm, foreach=True): a norm per gradient, their norm, an in-place
// scale. Source: torch/nn/utils/clip_grad.py (2.14).
void clip_grad_norm(Tape& tape, const std::vector<Tensor>& parameters, double max_norm,
                    NormOver over = NormOver::gradients, NormOf of = NormOf::model);

// States are made lazily, at the first step. `parameters` are the trainable ones, the same list at every step.
class OptimizerStep {
 public:
  virtual ~OptimizerStep() = default;
  virtual void step(Tape& tape, const std::vector<Tensor>& parameters) = 0;
};

std::unique_ptr<OptimizerStep> make_optimizer(Optimizer kind);  // nullptr when it is not modelled

// adamw.cc, sgd.cc, adafactor.cc, quantised_optimizers.cc, muon.cc, galore.cc.
std::unique_ptr<OptimizerStep> make_adamw_fused();
std::unique_ptr<OptimizerStep> make_adamw_foreach();
std::unique_ptr<OptimizerStep> make_adamw_forloop();
std::unique_ptr<OptimizerStep> make_sgd();
std::unique_ptr<OptimizerStep> make_sgd_momentum();
std::unique_ptr<OptimizerStep> make_adafactor_hf();
std::unique_ptr<OptimizerStep> make_adafactor_torch();
std::unique_ptr<OptimizerStep> make_adamw_8bit();
std::unique_ptr<OptimizerStep> make_paged_adamw_8bit();
std::unique_ptr<OptimizerStep> make_adamw_ao_8bit();
std::unique_ptr<OptimizerStep> make_adamw_ao_4bit();
std::unique_ptr<OptimizerStep> make_lion();
std::unique_ptr<OptimizerStep> make_muon();
std::unique_ptr<OptimizerStep> make_galore_adamw();

// A matrix of the model's layers: what Muon and GaLore are for. Embeddings, output layers and projectors are not, nor
// is the table of distances that T5's first layer has.
bool is_hidden_matrix(const Tensor& parameter);

// Helpers of the optimizers' files: in-place arithmetic (no memory), and a temporary like `a`.
void optimizer_math(std::initializer_list<const Tensor*> inputs, std::initializer_list<const Tensor*> outputs);
Tensor optimizer_temporary(const Tensor& a, DType dtype, OpKind op = OpKind::optimizer_math);
Tensor optimizer_temporary(Tape& tape, const Shape& shape, DType dtype);

}  // namespace ledger
