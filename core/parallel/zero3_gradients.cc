// zero3_gradients.cc - ZeRO-3's backward pass and step.

#include <utility>

#include "core/parallel/zero3.h"
#include "core/trace/streams.h"

namespace ledger {

// --- backward
// ---------------------------------------------------------------------------------------------------------------

// reduce_independent_p_g_buckets_and_remove_grads, __add_grad_to_ipg_bucket. A gradient larger than the bucket stays
// where it is.
void Zero3::on_gradient(const Param& param) {
  if (plus(filled_, param.elements) > options_.reduce_bucket && filled_ > 0) reduce();
  if (plus(filled_, param.elements) <= options_.reduce_bucket) {
    const Aside aside(tape_, "zero.reduce_bucket", Category::communication);
    Tensor& gradient = param.gradient();
    const Tensor place = flat::shaped(bucket_, gradient.shape(), filled_);
    copy_into(place, gradient);
    gradient = place;
  }
  members_.push_back(&param);
  filled_ = plus(filled_, param.elements);
}

// __reduce_and_partition_ipg_grads, partition_grads
void Zero3::reduce() {
  if (members_.empty()) return;
  const std::vector<const Param*> members = std::exchange(members_, {});
  const bool whole = !options_.reduce_scatter && filled_ <= options_.reduce_bucket;
  filled_ = 0;
  const std::vector<Tensor> reduced = whole ? all_reduce_bucket(members) : scatter(members);
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (options_.offload_optimizer) {
      keep_on_host(*members[i], reduced[i]);
    } else {
      keep(*members[i], reduced[i]);
    }
    members[i]->gradient().reset();
  }
}

// __avg_scatter_grads, reduce_scatter_coalesced: partitions of all gradients side by side, unless there is but one that
// needs no padding.
std::vector<Tensor> Zero3::scatter(const std::vector<const Param*>& members) {
  const Aside aside(tape_, options_.overlap ? kZeroReduceScope : "zero.reduce_copy", Category::communication);
  std::vector<Tensor> gradients;
  std::uint64_t parts = 0;
  for (const Param* param : members) {
    gradients.push_back(to(param->gradient(), options_.dtype));
    parts = plus(parts, param->part);
  }
  Tensor buffer;
  if (members.size() == 1 && members.front()->elements % options_.world == 0) {
    buffer = flat::flattened(gradients.front());
  } else {
    buffer = flat::buffer(tape_, OpKind::reduce_copy_in, times(parts, options_.world), options_.dtype);
    std::vector<const Tensor*> all;
    all.reserve(gradients.size());
    for (const Tensor& gradient : gradients)
      all.push_back(&gradient);
    const Tensor* const out = &buffer;
    tape_.run(OpKind::reduce_copy_in, all, {&out, 1}, flat::kCutFlat);
  }
  const Tensor own = flat::piece(buffer, times(parts, options_.rank), parts);
  tape_.run(OpKind::reduce_scatter, {&buffer}, {&own});
  std::vector<Tensor> reduced;
  std::uint64_t at = 0;
  for (const Param* param : members) {
    reduced.push_back(flat::piece(own, at, param->part));
    at += param->part;
  }
  return reduced;
}

// __avg_scatter_contiguous_grads: the product with gradient_predivide_factor is a copy of the bucket.
std::vector<Tensor> Zero3::all_reduce_bucket(const std::vector<const Param*>& members) {
  const Aside aside(tape_, options_.overlap ? kZeroReduceScope : "zero.reduce_copy", Category::communication);
  std::uint64_t elements = 0;
  for (const Param* param : members)
    elements += param->elements;
  const Tensor bucket = flat::piece(bucket_, 0, elements);
  all_reduce(bucket, ReduceOp::mean);
  const Tensor scaled = bucket * 1.0;
  std::vector<Tensor> reduced;
  std::uint64_t at = 0;
  for (const Param* param : members) {
    const std::uint64_t first = std::min(times(param->part, options_.rank), param->elements);
    reduced.push_back(flat::piece(scaled, at + first, std::min(param->part, param->elements - first)));
    at += param->elements;
  }
  return reduced;
}

void Zero3::keep(const Param& param, const Tensor& reduced) {
  const Tensor place = flat::piece(gradients_, param.offset, reduced.shape().numel());
  if (first_micro_batch_) {
    copy_into(place, reduced);
  } else {
    add_inplace(place, reduced);
  }
}

// The sum with earlier micro-batches' is made on the GPU, and at the last one the norm and the fp32 copy to be sent.
void Zero3::keep_on_host(const Param& param, const Tensor& reduced) {
  Tensor sum;
  {
    const Aside aside(tape_, "zero.offload_copy", Category::communication);
    sum = clone(reduced);
  }
  if (!boundary_) return host_->add(sum, param.offset);
  zero::norm_of(tape_, {sum});
  const Aside aside(tape_, "zero.offload_copy", Category::communication);
  const Tensor copy = to(sum, zero::master_dtype(options_.dtype));
  host_->add(copy, param.offset);
}

void Zero3::end_backward() {
  reduce();
  parameters_.release_leftovers();
  first_micro_batch_ = boundary_;
}

// --- step
// -------------------------------------------------------------------------------------------------------------------

std::vector<Tensor> Zero3::gradients_of(const SubGroup& group) const {
  std::vector<Tensor> all;
  for (const std::size_t member : group.params)
    all.push_back(flat::piece(gradients_, params_[member].offset, params_[member].part));
  return all;
}

// torch.isinf compares a copy of absolute values, torch.isnan the gradients with themselves.
void Zero3::find_overflow() {
  const Aside aside(tape_, "zero.overflow", Category::temporaries);
  const Shape shape{{total_, Sym::none}};
  {
    const Tensor magnitudes = bookkeeping(tape_, shape, options_.dtype);
    bookkeeping(tape_, shape, DType::boolean);
  }
  bookkeeping(tape_, shape, DType::boolean);
}

void Zero3::step() {
  first_micro_batch_ = true;
  parameters_.release_all();
  if (options_.offload_optimizer) {
    step_on_host();
    parameters_.gather_persistent();
    return;
  }
  Tensor norm;
  if (options_.dtype == DType::f16) find_overflow();
  std::vector<Tensor> norms;
  for (const SubGroup& group : groups_)
    norms.push_back(zero::norm_of(tape_, gradients_of(group)));
  if (options_.clips) norm = zero::global_norm(tape_, norms);
  norms.clear();
  for (SubGroup& group : groups_)
    update(group, norm);
  parameters_.gather_persistent();
}

// It takes nothing of the GPU, and sub-groups change nothing of what is computed.
void Zero3::step_on_host() {
  const Aside aside(tape_, "zero.param_partitions", Category::weights);
  host_->step(options_.clips ? host_->norm() : Tensor());
  for (const Param& param : params_)
    copy_into(param.partition, host_->master(param.offset, param.part));
}

// _prepare_fp32_grad_for_sub_group and what follows.
void Zero3::update(SubGroup& group, const Tensor& norm) {
  {
    const Aside aside(tape_, "zero.fp32_gradients", Category::gradients);
    const std::vector<Tensor> gradients = gradients_of(group);
    const Tensor flat = gradients.size() == 1 ? gradients.front() : cat(gradients, 0, {group.elements, Sym::none});
    group.master.impl()->grad = to(flat, group.master.dtype());
  }
  zero::unscale_and_clip(tape_, group.master.grad(), norm);
  group.step({group.master});
  const Aside aside(tape_, "zero.param_partitions", Category::weights);
  const Tensor own = flat::piece(flat_, group.offset, group.elements);
  if (own.impl()->storage != group.master.impl()->storage) copy_into(own, group.master);
  group.master.clear_grad();
}

}  // namespace ledger
