// sgd.cc - torch.optim.SGD, foreach implementation. Source: torch/optim/sgd.py (2.14), _multi_tensor_sgd.

#include "core/training/optimizer.h"

namespace ledger {
namespace {

class Sgd : public OptimizerStep {
 public:
  explicit Sgd(bool momentum) : momentum_(momentum) {}

  void step(Tape& tape, const std::vector<Tensor>& parameters) override {
    const Tape::Scope scope(tape, "sgd");
    const Tape::NoGrad no_grad(tape);
    const bool first = buffers_.empty();
    if (momentum_ && first) {
      const Tape::In in(tape, Category::optimizer_states);
      const Tape::Scope name(tape, "momentum_buffer");
      for (const Tensor& parameter : parameters)
        buffers_.push_back(clone(parameter.grad()));  // the first step's
    }
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const Tensor& direction = momentum_ ? buffers_[i] : parameters[i].grad();
      if (momentum_ && !first) tape.run(OpKind::momentum_update, {&parameters[i].grad()}, {&buffers_[i]});
      tape.run(OpKind::sgd_update, {&direction}, {&parameters[i]});
    }
  }

 private:
  bool momentum_;
  std::vector<Tensor> buffers_;
};

}  // namespace

std::unique_ptr<OptimizerStep> make_sgd() {
  return std::make_unique<Sgd>(false);
}
std::unique_ptr<OptimizerStep> make_sgd_momentum() {
  return std::make_unique<Sgd>(true);
}

}  // namespace ledger
