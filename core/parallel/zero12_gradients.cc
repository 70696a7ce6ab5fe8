// zero12_gradients.cc - the backward pass and the step of ZeRO-1 and ZeRO-2.

#include <algorithm>

#include "core/parallel/zero12.h"
#include "core/trace/streams.h"

namespace ledger {

// --- backward
// ---------------------------------------------------------------------------------------------------------------

// process_gradients. Stage 1 reduces after the last backward pass, unless communication overlaps.
void Zero12::on_gradient(const Param& param) {
  setup_buckets();
  const bool now = options_.stage == 2 || (options_.overlap && boundary_);
  if (now) add_to_bucket(param);
}

void Zero12::setup_buckets() {
  if (ready_) return;
  ready_ = true;
  buffer_ = 0;
  const Aside aside(tape_, "zero.reduce_bucket", Category::communication);
  for (std::size_t i = 0; i < (options_.overlap ? 2u : 1u); ++i)
    buffers_[i] = flat::buffer(tape_, OpKind::reduce_copy_in, options_.reduce_bucket, options_.dtype);
}

// reduce_independent_p_g_buckets_and_remove_grads
void Zero12::add_to_bucket(const Param& param) {
  if (plus(filled_, param.elements) > options_.reduce_bucket) {
    reduce_bucket();
    if (options_.overlap) buffer_ = 1 - buffer_;
  }
  Tensor& gradient = param.gradient();
  if (param.elements <= options_.reduce_bucket) {
    const Aside aside(tape_, "zero.reduce_bucket", Category::communication);
    const Tensor place = flat::shaped(buffers_[buffer_], gradient.shape(), filled_);
    copy_into(place, gradient);
    gradient = place;
  }
  members_.push_back(&param);
  filled_ = plus(filled_, param.elements);
}

// reduce_ipg_grads. A gradient larger than the bucket is alone in it, and stays where it is.
void Zero12::reduce_bucket() {
  if (members_.empty()) return;
  average(filled_ > options_.reduce_bucket ? flat::flattened(members_.front()->gradient())
                                           : flat::piece(buffers_[buffer_], 0, filled_));
  for (const Param* param : members_) {
    if (param->mine) {
      keep(*param);
    } else if (options_.stage == 2) {
      param->gradient().reset();
    }
  }
  members_.clear();
  filled_ = 0;
}

// average_tensor: with reduce_scatter the bucket is cut where partitions meet, and the pieces are reduced together.
void Zero12::average(const Tensor& tensor) {
  if (!options_.reduce_scatter) {
    all_reduce(tensor, ReduceOp::mean);
    return;
  }
  std::vector<Tensor> pieces;
  std::vector<bool> mine;
  std::uint64_t at = 0, start = 0, gathered = 0, owner = ~std::uint64_t{0};
  const auto cut = [&] {
    if (at == start) return;
    pieces.push_back(flat::piece(tensor, start, at - start));
    mine.push_back(owner == options_.rank);
    gathered += at - start;
    start = at;
    if (gathered <= options_.reduce_bucket) return;
    all_reduce_pieces(pieces, mine);
    pieces.clear();
    mine.clear();
    gathered = 0;
  };
  for (const Param* param : members_) {
    const std::uint64_t partition = groups_[param->group].partition, end = param->offset + param->elements;
    for (std::uint64_t from = param->offset; from < end;) {
      const std::uint64_t rank = from / partition, to = std::min(end, (rank + 1) * partition);
      if (rank != owner) cut();
      owner = rank;
      at += to - from;
      from = to;
    }
  }
  cut();
  if (!pieces.empty()) all_reduce_pieces(pieces, mine);
}

// allreduce_and_copy_with_multiple_ranks; flattening a list of one copies nothing.
void Zero12::all_reduce_pieces(const std::vector<Tensor>& pieces, const std::vector<bool>& mine) {
  if (pieces.size() == 1) {
    all_reduce(pieces[0], ReduceOp::mean);
    return;
  }
  const Aside aside(tape_, options_.overlap ? kZeroReduceScope : "zero.reduce_copy", Category::communication);
  std::uint64_t total = 0, at = 0;
  for (const Tensor& piece : pieces)
    total += piece.shape().numel();
  const Tensor flat = cat(pieces, 0, {total, Sym::none});
  all_reduce(flat, ReduceOp::mean);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const std::uint64_t count = pieces[i].shape().numel();
    if (mine[i]) copy_into(pieces[i], flat::piece(flat, at, count));
    at += count;
  }
}

// copy_grads_in_partition: whole gradients of all parameters that reach into this partition.
void Zero12::keep(const Param& param) {
  if (options_.offload_optimizer) {
    copy_to_host(param);
    return;
  }
  const Aside aside(tape_, "zero.gradient_partition", Category::gradients);
  if (!gradient_partition_) {
    std::uint64_t total = 0;
    for (const Group& group : groups_) {
      for (const Param& other : group.params)
        total = plus(total, other.mine ? other.elements : 0);
    }
    gradient_partition_ = flat::buffer(tape_, OpKind::reduce_scatter, total, options_.dtype);
    kept_ = 0;
  }
  Tensor& gradient = param.gradient();
  const Tensor place = flat::shaped(gradient_partition_, gradient.shape(), kept_);
  copy_into(place, gradient);
  gradient = place;
  kept_ += param.elements;
}

// set_norm_for_param_grad_in_gpu, update_offload_overflow_tracker, async_inplace_copy_grad_to_fp32_buffer_from_gpu.
// Before the last micro-batch gradients are summed in host memory by way of the staging buffer.
void Zero12::copy_to_host(const Param& param) {
  Tensor& gradient = param.gradient();
  const Group& group = groups_[param.group];
  const std::uint64_t end = times(group.partition, options_.rank + 1);
  const std::uint64_t count = std::min(plus(param.offset, param.elements), end) - param.offset - param.skipped;
  const Tensor part = flat::piece(gradient, param.skipped, count);
  const std::uint64_t place = param.offset + param.skipped - times(group.partition, options_.rank);
  if (!boundary_) return group.host->add(part, place);
  {
    const Aside aside(tape_, "zero.norm", Category::temporaries);
    const Tensor copy = to(part, DType::f64);
    norms_.push_back(vector_norm(copy));
  }
  zero::check_finite(gradient);
  const Aside aside(tape_, "zero.offload_copy", Category::communication);
  const Tensor copy = to(part, zero::master_dtype(options_.dtype));
  group.host->add(copy, place);
  gradient.reset();
}

// reduce_gradients (stage 1) and independent_gradient_partition_epilogue.
void Zero12::end_backward() {
  if (options_.stage == 1) {
    if (!boundary_) return;
    if (!options_.overlap) {
      for (const Group& group : groups_) {
        for (const Param& param : group.params) {
          if (param.gradient()) add_to_bucket(param);
        }
      }
    }
  }
  reduce_bucket();
  if (!options_.offload_optimizer) {
    for (Group& group : groups_)
      collect(group);
  }
  gradient_partition_.reset();
  for (Tensor& buffer : buffers_)
    buffer.reset();
  ready_ = false;
  for (const Group& group : groups_) {
    for (const Param& param : group.params)
      param.gradient().reset();
  }
}

// Gradients of this partition, or their sum with those of earlier micro-batches; after the last one cut to the
// partition's size, and padded where the parameters end before it does.
void Zero12::collect(Group& group) {
  const Aside aside(tape_, "zero.gradient_partition", Category::gradients);
  const bool first = group.gradients.empty();
  std::size_t i = 0;
  for (const Param& param : group.params) {
    if (!param.mine || !param.gradient()) continue;
    if (first) {
      group.gradients.push_back(param.gradient());
    } else {
      add_inplace(group.gradients[i++], param.gradient());
    }
  }
  if (!boundary_) return;
  std::uint64_t held = 0;
  i = 0;
  for (const Param& param : group.params) {  // get_flat_partition
    if (!param.mine || !param.gradient()) continue;
    Tensor& gradient = group.gradients[i++];
    const std::uint64_t count = std::min(param.elements - param.skipped, group.partition - held);
    gradient = flat::piece(gradient, param.skipped, count);
    held += count;
  }
  if (held < group.partition)
    group.gradients.push_back(zeros(tape_, {{group.partition - held, Sym::none}}, options_.dtype));
}

// --- step
// -------------------------------------------------------------------------------------------------------------------

void Zero12::step() {
  if (!options_.offload_optimizer) {
    if (options_.dtype == DType::f16) {
      for (const Group& group : groups_) {
        for (const Tensor& gradient : group.gradients)
          zero::check_finite(gradient);
      }
    }
    for (const Group& group : groups_)
      norms_.push_back(zero::norm_of(tape_, group.gradients));
  }
  Tensor norm;
  if (options_.clips) norm = options_.offload_optimizer ? norm_on_host() : zero::global_norm(tape_, norms_);
  for (Group& group : groups_)
    update(group, norm);
  norms_.clear();
  for (const Group& group : groups_) {  // all_gather_into_tensor, in place
    if (options_.world > 1) tape_.run(OpKind::all_gather, {}, {&group.flat});
  }
}

// complete_grad_norm_calculation_for_cpu_offload.
Tensor Zero12::norm_on_host() const {
  std::vector<Tensor> norms;
  for (const Group& group : groups_)
    norms.push_back(group.host->norm());
  const Tape::OnHost on_host(tape_);
  return zero::global_norm(tape_, norms);
}

void Zero12::update(Group& group, const Tensor& norm) {
  const Tensor own = this->own(group);
  if (options_.offload_optimizer) {
    const Aside aside(tape_, "zero.params", Category::weights);
    group.host->step(norm);
    copy_into(own, group.host->master());
    return;
  }
  {
    const Aside aside(tape_, "zero.fp32_gradients", Category::gradients);
    const Tensor flat =
        group.gradients.size() == 1 ? group.gradients.front() : cat(group.gradients, 0, {group.partition, Sym::none});
    group.master.impl()->grad = to(flat, group.master.dtype());
  }
  group.gradients.clear();
  zero::unscale_and_clip(tape_, group.master.grad(), norm);
  group.step({group.master});
  group.master.clear_grad();
  const Aside aside(tape_, "zero.params", Category::weights);
  copy_into(own, group.master);
}

}  // namespace ledger
