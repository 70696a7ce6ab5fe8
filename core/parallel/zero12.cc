// zero12.cc - what deepspeed.initialize makes under ZeRO-1 and ZeRO-2; the rest is in zero12_gradients.cc.

#include "core/parallel/zero12.h"

#include <algorithm>

namespace ledger {
namespace {

constexpr std::uint64_t kStartAlignment = 2;  // nccl_start_alignment_factor: elements of 2 bytes

}  // namespace

// --- initialize
// -------------------------------------------------------------------------------------------------------------

void Zero12::wrap(const std::vector<Tensor>& trainable) {
  const auto groups = zero::parameter_groups(trainable);
  groups_.reserve(groups.size());
  for (const std::vector<std::size_t>& members : groups)
    add_group(trainable, members);
  std::uint64_t largest = 0;
  for (const Group& group : groups_) {
    for (const Param& param : group.params) {
      largest = std::max(largest, param.elements);
      tape_.after_accumulation(param.tensor, [this, &param](Tensor&) { on_gradient(param); });
    }
  }
  if (options_.offload_optimizer) {
    const Aside aside(tape_, "zero.offload_staging", Category::communication);
    staging_ = zeros(tape_, {{largest, Sym::none}}, options_.dtype);
    tape_.trace().host.push_back({"zero.offload_staging", Category::communication, options_.dtype, largest});
  }
  const Aside aside(tape_, "zero.fp32_gradients", Category::gradients);  // initialize_optimizer_states
  if (options_.offload_optimizer) return;
  for (const Group& group : groups_)
    zeros(tape_, {{group.partition, Sym::none}}, zero::master_dtype(options_.dtype));
}

void Zero12::add_group(const std::vector<Tensor>& trainable, const std::vector<std::size_t>& members) {
  Group& group = groups_.emplace_back();
  std::uint64_t total = 0;
  for (const std::size_t member : members) {
    const std::uint64_t elements = trainable[member].shape().numel();
    group.params.push_back({trainable[member], total, elements, groups_.size() - 1, 0, false});
    total = plus(total, elements);
  }
  const std::uint64_t aligned = round_up(total, times(kStartAlignment, options_.world));
  group.partition = aligned / options_.world;
  const std::uint64_t begin = times(group.partition, options_.rank), end = plus(begin, group.partition);
  for (Param& param : group.params) {  // get_partition_info
    param.mine = param.offset < end && plus(param.offset, param.elements) > begin;
    if (param.mine && param.offset < begin) param.skipped = begin - param.offset;
  }
  flatten(group, total);
  make_master(group);
  if (options_.offload_optimizer) {
    offload(group);
  } else {
    group.step = make_step_();
  }
}

// flatten_dense_tensors_aligned and _update_model_bit16_weights: for a moment the weights are there twice. (Where the
// card has no room for that, DeepSpeed flattens in host memory.)
void Zero12::flatten(Group& group, std::uint64_t total) {
  tape_.empty_cache();
  const Aside aside(tape_, "zero.params", Category::weights);
  std::vector<Tensor> parts;
  parts.reserve(group.params.size() + 1);
  for (const Param& param : group.params)
    parts.push_back(flat::flattened(param.tensor));
  const std::uint64_t aligned = times(group.partition, options_.world);
  if (aligned != total) parts.push_back(zeros(tape_, {{aligned - total, Sym::none}}, parts.front().dtype()));
  group.flat = cat(parts, 0, {aligned, Sym::none});
  parts.clear();
  for (const Param& param : group.params) {
    tape_.set_data(param.tensor, flat::shaped(group.flat, param.tensor.shape(), param.offset));
    Parameter& parameter = tape_.trace().parameters[static_cast<std::size_t>(param.tensor.impl()->parameter)];
    set_shard(parameter, param.elements, param.elements, 0);
    parameter.storage = group.flat.impl()->storage->id;
    parameter.offset = param.offset;
  }
}

Tensor Zero12::own(const Group& group) const {
  return flat::piece(group.flat, times(group.partition, options_.rank), group.partition);
}

void Zero12::make_master(Group& group) {
  const Aside aside(tape_, "zero.master_partition", Category::master_weights);
  const Tensor copy = clone(own(group));
  if (!options_.offload_optimizer) {
    group.master = to(copy, zero::master_dtype(options_.dtype));
    return;
  }
  group.host.emplace(tape_, group.partition, zero::master_dtype(options_.dtype));
  copy_into(group.host->master(), copy);
}

// Master weights, their gradients, both moments and the way back, in 16 bits.
void Zero12::offload(const Group& group) {
  std::vector<HostBuffer>& host = tape_.trace().host;
  host.push_back({"zero.master_partition", Category::master_weights, DType::f32, group.partition});
  host.push_back({"zero.fp32_gradients", Category::gradients, DType::f32, group.partition});
  host.push_back({"zero.exp_avg", Category::optimizer_states, DType::f32, group.partition});
  host.push_back({"zero.exp_avg_sq", Category::optimizer_states, DType::f32, group.partition});
  host.push_back({"zero.param_buffer", Category::weights, options_.dtype, group.partition});
}

std::unique_ptr<Zero> make_zero12(Tape& tape, const ZeroOptions& options, const MakeStep& make_step) {
  return std::make_unique<Zero12>(tape, options, make_step);
}

}  // namespace ledger
