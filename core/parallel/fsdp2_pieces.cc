// fsdp2_pieces.cc - units that run piece by piece, or a pipeline's micro-batches one by one: their gradients stay whole
// and are summed until the last.
#include "core/parallel/flat.h"
#include "core/parallel/fsdp2.h"

namespace ledger {

// Whether gradients stay here for now.
bool Fsdp2::sums(const Group& group) const {
  return group.pieces == Pieces::some || (options_.pipelined && !reducing_);
}

// set_requires_gradient_sync() and set_reshard_after_backward(): accumulate_unsharded_grad_if_needed and, where nothing
// is reduced, to_accumulated_grad_if_needed.
void Fsdp2::sum_pieces(Group& group) {
  const Aside aside(tape_, "fsdp.unsharded_gradients", Category::gradients);
  for (Param& param : group.params) {
    Tensor& gradient = param.unsharded.impl()->grad;
    if (!gradient) continue;
    if (param.summed) {
      add_inplace(param.summed, gradient);
      gradient.reset();
    } else if (sums(group) && gradient.dtype() != options_.reduce_dtype) {
      param.summed = to(gradient, options_.reduce_dtype);
      gradient.reset();
    }
  }
}

void Fsdp2::in_pieces(UnitId unit, Pieces pieces) {
  Group& group = group_of(unit);
  group.pieces = pieces;
  if (pieces == Pieces::over) reshard(group);
}

void Fsdp2::end_micro_batch() {
  for (Group& group : groups_)
    end(group);
}

// In the order of named_modules(): the head's unit after the layers'.
void Fsdp2::reduce_all(FinalCallback callback) {
  reducing_ = true;
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    if (i != kHeadUnit && !groups_[i].params.empty()) post_backward(groups_[i]);
  }
  if (!groups_[kHeadUnit].params.empty()) post_backward(groups_[kHeadUnit]);
  const Tensor kept = callback == FinalCallback::missed ? reduce_scatter_state_ : Tensor();
  end_of_backward();
  reduce_scatter_state_ = kept;
  reducing_ = false;
}

}  // namespace ledger
