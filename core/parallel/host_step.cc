#include "core/parallel/host_step.h"

#include "core/parallel/deepspeed.h"

namespace ledger {

HostStep::HostStep(Tape& tape, std::uint64_t elements, DType dtype) : tape_(tape) {
  const Tape::OnHost on_host(tape);
  const Aside aside(tape, "zero.host_step", Category::master_weights);
  for (Tensor* one : {&master_, &gradient_, &average_, &square_})
    *one = zeros(tape, flat::shape(elements), dtype);
  steps_ = zeros(tape, Shape{}, DType::f32);
}

void HostStep::add(const Tensor& gradient, std::uint64_t start) const {
  const Tape::NoGrad no_grad(tape_);
  add_inplace(flat::piece(gradient_, start, gradient.shape().numel()), gradient);
}

Tensor HostStep::norm() const {
  const Tape::OnHost on_host(tape_);
  return zero::norm_of(tape_, {gradient_});
}

void HostStep::step(const Tensor& norm) const {
  const Tape::OnHost on_host(tape_);
  zero::unscale_and_clip(tape_, gradient_, norm);
  tape_.run(OpKind::adamw, {&gradient_}, {&master_, &average_, &square_, &steps_});
  tape_.run(OpKind::zeros, {}, {&gradient_});
}

}  // namespace ledger
