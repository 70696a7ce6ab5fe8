#include "core/parallel/fsdp2.h"

#include <algorithm>

#include "core/models/dtensor.h"
#include "core/parallel/flat.h"
#include "core/trace/streams.h"

namespace ledger {
namespace {

Dim elements(std::uint64_t count) {
  return {count, Sym::none};
}

}  // namespace

// --- units
// ------------------------------------------------------------------------------------------------------------------

bool Fsdp2::is_unit(UnitId unit) const {
  return options_.titan_units || unit == kRootUnit || unit >= kFirstLayerUnit;
}

Fsdp2::Group& Fsdp2::group_of(UnitId unit) {
  const std::size_t index = is_unit(unit) ? unit : kRootUnit;
  if (index >= groups_.size()) groups_.resize(index + 1);
  return groups_[index];
}

bool Fsdp2::of_experts(const Group& group) const {
  return static_cast<std::size_t>(&group - groups_.data()) >= options_.experts_from;
}

std::uint64_t Fsdp2::ranks_of(const Group& group) const {
  return of_experts(group) ? options_.world / options_.expert_ranks : options_.world;
}

RankGroup Fsdp2::members_of(const Group& group) const {
  return of_experts(group) ? RankGroup::expert_data : RankGroup::data;
}

// The caller's word counts for the root, too; only without one (None) would the root stay gathered, as it always did
// before PyTorch 2.8. torchtitan keeps what backward needs first: the head, and before 0.1 the last layer.
bool Fsdp2::reshards_after_forward(const Group& group) const {
  const auto unit = static_cast<UnitId>(&group - groups_.data());
  const bool kept =
      unit == kHeadUnit || (options_.kept_from != kNoUnit && (unit == kRootUnit || unit >= options_.kept_from));
  return options_.reshard_after_forward && !kept;
}

// FSDPParam._init_sharded_param and init_unsharded_param.
Tensor Fsdp2::parameter(const std::string& name, const Shape& shape, DType dtype, Parameter::Role role, bool trainable,
                        Tensor& trained) {
  Param param;
  Shape shard = shape;
  const std::uint64_t rank = of_experts(*open_) ? options_.rank / options_.expert_ranks : options_.rank;
  shard.set(0, elements(divide_up(shape[0].size, ranks_of(*open_))));
  param.shard_elements = shard.numel();
  if (options_.offload) {
    const Tape::OnHost on_host(tape_);
    param.shard = tape_.parameter(name, shard, dtype, role, trainable);
    const char* const kind = trainable ? "fsdp.shards" : "fsdp.frozen_shards";
    tape_.trace().host.push_back({kind, Category::weights, dtype, param.shard_elements});
    if (trainable)
      tape_.trace().host.push_back({"fsdp.shard_gradients", Category::gradients, dtype, param.shard_elements});
  } else {
    param.shard = tape_.parameter(name, shard, dtype, role, trainable);
  }
  set_shard(tape_.trace().parameters.back(), shape.numel(), param.shard_elements, rank);
  const bool of_layer = open_ != nullptr && open_ - groups_.data() >= static_cast<std::ptrdiff_t>(kFirstLayerUnit);
  const bool narrow = options_.float8_gathered && of_layer && role == Parameter::Role::matrix;
  param.gathered = narrow ? DType::u8 : options_.param_dtype;
  param.unsharded = tape_.unbacked(shape, options_.param_dtype);
  param.unsharded.impl()->requires_grad = trainable;
  trained = param.shard;
  Tensor result = param.unsharded;
  open_->params.push_back(std::move(param));
  return result;
}

// What was quantised whole is cut as any parameter is; codes stored in bytes would be left out of sharding (accelerate
// utils/fsdp_utils.py, fsdp2_prepare_model).
Tensor Fsdp2::packed(const std::string& name, Bytes bytes, const FillCodes& fill) {
  Tensor shard;
  const DType dtype = options_.param_dtype;
  const Shape shape = storage_of(bytes, dtype);
  Tensor whole = parameter(name, shape, dtype, Parameter::Role::matrix, false, shard);
  const Aside aside(tape_, "fsdp.quantised", Category::weights);
  const Tensor quantised = tape_.empty(OpKind::load_parameter, shape, dtype);
  fill(as_bytes(quantised, bytes));
  const Parameter& own = tape_.trace().parameters.back();
  if (own.held != 0) copy_into(flat::piece(shard, 0, own.held), flat::piece(quantised, own.first, own.held));
  return whole;
}

// --- gathering
// --------------------------------------------------------------------------------------------------------------

// FSDPParam.all_gather_inputs: from host memory each shard comes by itself, and is cast by itself.
std::vector<Tensor> Fsdp2::shards_here(const Group& group) {
  std::vector<Tensor> here;
  if (!options_.offload) return here;
  here.reserve(group.params.size());
  for (const Param& param : group.params) {
    const Tensor copy = tape_.empty(OpKind::gather_copy_in, param.shard.shape(), param.shard.dtype());
    copy_into(copy, param.shard);
    here.push_back(to(copy, options_.param_dtype));
  }
  return here;
}

Bytes Fsdp2::shard_bytes(const Group& group, bool cast_only) const {
  Bytes sum = 0;
  for (const Param& param : group.params) {
    if (!cast_only || param.shard.dtype() != param.gathered)
      sum = plus(sum, times(param.shard_elements, element_bytes(param.gathered)));
  }
  return sum;
}

// foreach_all_gather: shards in another dtype are cast into one flat input first, which is copied into the output. What
// is gathered in two dtypes goes as bytes.
void Fsdp2::unshard(Group& group) {
  if (group.gathered || group.called || group.all_gather || group.params.empty()) return;
  group.called = ranks_of(group) == 1;
  if (group.called) return;
  const Tape::Among ranks(tape_, members_of(group));
  const Tape::Scope scope(tape_, kAllGatherScope, Tape::Scope::Below::nothing);
  const Tape::Layer no_layer(tape_, -1);
  const Tape::In in(tape_, Category::communication);
  std::vector<const Tensor*> shards;
  DType dtype = options_.param_dtype;
  const std::vector<Tensor> here = shards_here(group);
  for (std::size_t i = 0; i < group.params.size(); ++i) {
    const Param& param = group.params[i];
    if (param.gathered != options_.param_dtype) dtype = param.gathered;
    shards.push_back(options_.offload ? &here[i] : &param.shard);
  }
  const Bytes all = shard_bytes(group, false), each = element_bytes(dtype);
  const Bytes cast = options_.offload ? 0 : shard_bytes(group, true);
  Tensor flat_input;
  if (cast != 0) flat_input = tape_.empty(OpKind::gather_copy_in, {elements(cast / each)}, dtype);
  group.all_gather = tape_.empty(OpKind::all_gather, {elements(times(all / each, ranks_of(group)))}, dtype);
  const Tensor* output = &group.all_gather;
  tape_.run(OpKind::gather_copy_in, shards, {&output, 1});
  tape_.run(OpKind::all_gather, {}, {&group.all_gather});
}

// In forward the output is kept until the next unit's copy-out, so that the two may overlap.
void Fsdp2::wait_for_unshard(Group& group) {
  if (!group.all_gather && !group.called) return;
  const bool forward = group.state == State::forward;
  const Tensor previous = forward ? std::move(all_gather_state_) : Tensor();  // a local name keeps it until the end
  {
    const Aside aside(tape_, "fsdp.unsharded", Category::weights);
    const Tape::Among ranks(tape_, members_of(group));
    std::vector<const Tensor*> outputs;
    Tensor cast;  // of one rank each shard is cast and copied, the name bound until the next one is cast
    for (const Param& param : group.params) {
      if (group.called) cast = to(param.shard, options_.param_dtype);
      const std::uint64_t padded = times(param.shard_elements, ranks_of(group));
      const Bytes bytes = times(padded, element_bytes(param.gathered));
      tape_.alloc_storage(param.unsharded, {elements(divide_up(bytes, element_bytes(options_.param_dtype)))},
                          OpKind::gather_copy_out);
      outputs.push_back(&param.unsharded);
      if (group.called) tape_.run(OpKind::gather_copy_out, {&cast}, {&param.unsharded});
    }
    const Tensor* input = &group.all_gather;
    if (!group.called) tape_.run(OpKind::gather_copy_out, {&input, 1}, outputs);
  }
  group.gathered = true;
  if (forward) all_gather_state_ = group.all_gather;
  group.called = false;
  group.all_gather.reset();
}

void Fsdp2::reshard(Group& group) {
  if (!group.gathered) return;
  for (const Param& param : group.params)
    tape_.free_storage(param.unsharded);
  group.gathered = false;
}

// set_modules_to_forward_prefetch and set_modules_to_backward_prefetch, as torchtitan sets them where experts are
// apart: a layer's neighbour with its experts, and at the ends what stands there.
void Fsdp2::gather_named(const Group& group, Pass pass) {
  if (options_.experts_from == kNoUnit) return;
  const bool forward = pass == Pass::forward;
  const auto unit = static_cast<UnitId>(&group - groups_.data());
  const UnitId first = kFirstLayerUnit, last = options_.experts_from - 1;
  const bool layer = unit >= first && unit <= last;
  if (!layer) {
    if (unit == (forward ? kEmbeddingUnit : kHeadUnit)) unshard(groups_[forward ? first : last]);
  } else if (unit == (forward ? last : first)) {
    unshard(groups_[forward ? kHeadUnit : kEmbeddingUnit]);
  } else {
    const UnitId next = forward ? unit + 1 : unit - 1;
    unshard(groups_[next]);
    const std::size_t experts = next - first + options_.experts_from;
    if (experts < groups_.size()) unshard(groups_[experts]);
  }
}

// --- hooks
// ------------------------------------------------------------------------------------------------------------------

Tensor Fsdp2::before_forward(UnitId unit, const Tensor& input) {
  if (!is_unit(unit)) return input;
  Group& group = group_of(unit);
  if (group.in_backward) return input;
  group.state = State::forward;
  unshard(group);
  wait_for_unshard(group);
  gather_named(group, Pass::forward);
  if (!input || !input.requires_grad() || group.params.empty()) return input;
  return tape_.after_gradient_of(input, [this, &group] { post_backward(group); });
}

void Fsdp2::after_forward(UnitId unit, const Tensor& output) {
  if (!is_unit(unit)) return;
  Group& group = group_of(unit);
  if (group.in_backward) return;
  group.state = State::idle;
  if (tape_.in_backward()) return;  // a recomputation around the unit: its backward comes next
  if (!group.params.empty()) {
    if (reshards_after_forward(group)) reshard(group);
    group.post_forward_indices.push_back(post_forward_order_.size());
    post_forward_order_.push_back(static_cast<std::size_t>(&group - groups_.data()));
  }
  if (tape_.grad_enabled() && output.requires_grad())
    tape_.before_gradient_of(output, [this, &group] { pre_backward(group); });
  if (unit == kRootUnit) all_gather_state_.reset();
}

void Fsdp2::pre_backward(Group& group) {
  group.in_backward = true;
  if (!callback_queued_ && !options_.pipelined) {
    callback_queued_ = true;
    tape_.at_backward_end([this] { end_of_backward(); });
  }
  if (group.state == State::pre_backward || group.params.empty()) return;
  group.state = State::pre_backward;
  unshard(group);
  wait_for_unshard(group);
  gather_named(group, Pass::backward);
  // Prefetch the unit that ended forward before this one. (The embedding's names none, and none ended before it.)
  const bool names = options_.experts_from != kNoUnit && !of_experts(group);
  if (names || group.post_forward_indices.empty()) return;
  const std::size_t index = group.post_forward_indices.back();
  group.post_forward_indices.pop_back();
  if (index > 0) unshard(groups_[post_forward_order_[index - 1]]);
}

void Fsdp2::post_backward(Group& group) {
  group.state = State::post_backward;
  sum_pieces(group);
  if (sums(group)) return;
  std::vector<Param*> with_gradient;
  std::vector<Tensor> gradients;
  for (Param& param : group.params) {
    Tensor& gradient = param.summed ? param.summed : param.unsharded.impl()->grad;
    if (!gradient) continue;
    with_gradient.push_back(&param);
    // FSDPParam's unsharded_grad_data: partial sums over tensor-parallel ranks, of what these do not cut, are made
    // whole.
    const bool partial = options_.tensor_ranks > 1 && parameter_of(param.shard).cut.piece == 0;
    gradients.push_back(partial ? dtensor::sum_of_ranks(gradient) : gradient);
    gradient.reset();
  }
  if (group.pieces == Pieces::over) reshard(group);
  if (!gradients.empty()) reduce(group, with_gradient, gradients);
}

// --- reducing
// ---------------------------------------------------------------------------------------------------------------

// foreach_reduce: the flat input of one unit stays until the next unit reduces.
void Fsdp2::reduce(const Group& group, const std::vector<Param*>& params, std::vector<Tensor>& gradients) {
  reduce_scatter_state_.reset();
  const Tape::Among ranks(tape_, members_of(group));
  const Tape::Scope scope(tape_, kReduceScatterScope, Tape::Scope::Below::nothing);
  const Tape::Layer no_layer(tape_, -1);
  const Tape::In in(tape_, Category::communication);
  std::uint64_t total = 0;
  std::vector<const Tensor*> inputs;
  for (std::size_t i = 0; i < params.size(); ++i) {
    total = plus(total, params[i]->shard_elements);
    inputs.push_back(&gradients[i]);
  }
  const Shape padded{elements(times(total, ranks_of(group)))};
  const DType dtype = options_.reduce_dtype, computed = gradients.front().dtype();
  reduce_scatter_state_ = tape_.empty(OpKind::reduce_copy_in, padded, dtype);
  const Tensor* output = &reduce_scatter_state_;
  {
    Tensor narrowed;  // narrowing casts go through a buffer in the gradients' dtype
    if (element_bytes(computed) > element_bytes(dtype)) {
      narrowed = tape_.empty(OpKind::reduce_copy_in, padded, computed);
      output = &narrowed;
    }
    tape_.run(OpKind::reduce_copy_in, inputs, {&output, 1});
    if (narrowed) copy_into(reduce_scatter_state_, narrowed);
  }
  const Tensor last = gradients.back();  // the name that a loop over the gradients leaves bound
  gradients.clear();
  Tensor reduced;
  {
    const Tape::In gradients_in(tape_, Category::gradients);
    reduced = tape_.empty(OpKind::reduce_scatter, {elements(total)}, dtype);
    // set_gradient_divide_factor: the mean is over all tokens' ranks, those of other experts too, whose part in it
    // costs one rank alone memory.
    const auto others = static_cast<double>(of_experts(group) ? options_.expert_ranks : 1);
    if (ranks_of(group) == 1) {
      copy_into(reduced, reduce_scatter_state_ / others);
    } else {
      tape_.run(OpKind::reduce_scatter, {&reduce_scatter_state_}, {&reduced});
      if (others != 1) tape_.run(OpKind::mul_scalar, {&reduced}, {&reduced}, {1 / others, {}});
    }
    reduced = to(reduced, params.front()->shard.dtype());
  }
  keep_gradients(params, std::move(reduced));
}

Tensor Fsdp2::to_host(const Tensor& gradient) {
  Tensor copy;
  {
    const Tape::OnHost on_host(tape_);
    const Tape::In in(tape_, Category::gradients);
    copy = tape_.empty(OpKind::to_copy, gradient.shape(), gradient.dtype());
  }
  copy_into(copy, gradient);
  return copy;
}

// The shards' gradients are views of the reduced one, or are added to those of earlier micro-batches.
void Fsdp2::keep_gradients(const std::vector<Param*>& params, Tensor reduced) {
  std::uint64_t offset = 0;
  for (Param* param : params) {
    TensorImpl& shard = *param->shard.impl();
    Tensor gradient = tape_.view_of(reduced, shard.shape, shard.strides, offset);
    if (options_.offload) gradient = to_host(gradient);
    offset += param->shard_elements;
    if (shard.grad) {
      add_inplace(shard.grad, gradient);
    } else {
      shard.grad = gradient;
    }
    tape_.trace().parameters[static_cast<std::size_t>(shard.parameter)].gradient = shard.grad.impl()->storage->id;
  }
}

// _root_post_backward_final_callback: units whose input needs no gradient reduce here, the root first.
void Fsdp2::end_of_backward() {
  for (Group& group : groups_) {
    end(group);
    group.all_gather.reset();
    group.post_forward_indices.clear();
  }
  post_forward_order_.clear();
  reduce_scatter_state_.reset();
  callback_queued_ = false;
}

void Fsdp2::end(Group& group) {
  if (group.state != State::post_backward && !group.params.empty()) post_backward(group);
  group.state = State::idle;
  group.in_backward = group.called = false;
}

}  // namespace ledger
