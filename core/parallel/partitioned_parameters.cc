#include "core/parallel/partitioned_parameters.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "core/trace/streams.h"

namespace ledger {
namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::min();

template <typename T>
bool has(const std::vector<T>& all, T one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

template <typename T>
void add_once(std::vector<T>& all, T one) {
  if (!has(all, one)) all.push_back(one);
}

}  // namespace

// --- parameters
// -------------------------------------------------------------------------------------------------------------

// Partitions that are offloaded lie in host memory (trace().host). The storage is padded so that all are equal.
Tensor PartitionedParameters::add(const std::string& name, const Shape& shape, DType dtype, Parameter::Role role,
                                  bool trainable, Tensor& partition) {
  Param param;
  param.elements = shape.numel();
  const std::uint64_t part = divide_up(param.elements, options_.world);
  param.padded = times(part, options_.world);
  param.trainable = trainable;
  param.persistent = param.elements <= options_.persistence;
  param.recent = kNever;
  param.whole = tape_.unbacked(shape, dtype);
  param.whole.impl()->requires_grad = trainable;
  param.whole.impl()->parameter = static_cast<std::int32_t>(params_.size());
  if (options_.loads_whole) {
    load_whole(param, name, dtype, role);
  } else {
    make(param, name, dtype, role);
  }
  partition = param.partition;
  params_.push_back(std::move(param));
  return params_.back().whole;
}

void PartitionedParameters::make(Param& param, const std::string& name, DType dtype, Parameter::Role role) {
  const std::uint64_t part = param.padded / options_.world;
  const Tape::In in(tape_, Category::weights);
  const Tensor whole = tape_.empty(OpKind::load_parameter, param.whole.shape(), dtype);
  std::optional<Tape::OnHost> on_host;
  if (options_.offload_parameters) {
    on_host.emplace(tape_);
    if (!param.trainable) keep_on_host(param);
  }
  param.partition = tape_.parameter(name, {{part, Sym::none}}, dtype, role, param.trainable);
  set_shard(tape_.trace().parameters.back(), param.elements, part, options_.rank);
}

void PartitionedParameters::keep_on_host(const Param& param) {
  const std::uint64_t part = param.padded / options_.world;
  tape_.trace().host.push_back({"zero.frozen_partitions", Category::weights, param.whole.dtype(), part});
}

void PartitionedParameters::load_whole(Param& param, const std::string& name, DType dtype, Parameter::Role role) {
  const std::uint64_t part = param.padded / options_.world;
  const Tape::In in(tape_, Category::weights);
  tape_.alloc_storage(param.whole, param.whole.shape(), OpKind::load_parameter);
  param.partition = tape_.unbacked({{part, Sym::none}}, dtype);
  param.partition.impl()->parameter = static_cast<std::int32_t>(tape_.trace().parameters.size());
  tape_.trace().parameters.push_back({name, kNoStorage, kNoStorage, role, param.trainable, param.elements});
  set_shard(tape_.trace().parameters.back(), param.elements, part, options_.rank);
}

Tensor PartitionedParameters::add_packed(const std::string& name, const Shape& shape, DType dtype, Bytes bytes,
                                         const FillCodes& fill) {
  Tensor partition;
  Tensor whole = add(name, shape, dtype, Parameter::Role::matrix, false, partition);
  params_.back().packed = true;
  fill(as_bytes(whole, bytes));
  return whole;
}

// One after the other, each in the place in the ledger that it was loaded for.
void PartitionedParameters::partition_loaded() {
  if (!options_.loads_whole) return;
  for (std::size_t i = 0; i < params_.size(); ++i) {
    Param& param = params_[i];
    const StorageInfo loaded = tape_.trace().storages[param.whole.impl()->storage->id];
    const Aside aside(tape_, "zero.partition", Category::weights);
    std::optional<Tape::OnHost> on_host;
    if (options_.offload_parameters) {  // Init._partition_param: from the GPU straight into host memory
      on_host.emplace(tape_);
      if (!param.trainable) keep_on_host(param);
    }
    tape_.alloc_storage(param.partition, param.partition.shape(), OpKind::load_parameter);
    const StorageId id = param.partition.impl()->storage->id;
    tape_.trace().storages[id].scope = loaded.scope;
    tape_.trace().storages[id].layer = loaded.layer;
    Parameter& parameter = tape_.trace().parameters[i];
    parameter.storage = id;
    if (!param.packed) {
      tape_.run(OpKind::load_parameter, {}, {&param.partition}, {0, {static_cast<std::int64_t>(i), 0}});
    } else if (parameter.held != 0) {
      copy_into(flat::piece(param.partition, 0, parameter.held),
                flat::piece(param.whole, parameter.first, parameter.held));
    }
    tape_.free_storage(param.whole);
  }
}

void PartitionedParameters::gather_each_once() {
  for (Param& param : params_) {
    if (!param.trainable) continue;
    gather_one(param, "zero.persistent");
    give_up(param);
  }
}

// A module that only calls others may begin at the same address as the first of them.
PartitionedParameters::ModuleId PartitionedParameters::module_of(const ModuleCall& call) {
  const void* address = static_cast<const char*>(call.module) + (call.parameters.empty() ? 1 : 0);
  const auto [found, is_new] = by_address_.try_emplace(address, modules_.size());
  if (is_new) {
    Module& module = modules_[new_module()];
    for (const Tensor* parameter : call.parameters) {
      if (*parameter) module.params.push_back(id_of(*parameter));
    }
  }
  return found->second;
}

PartitionedParameters::ModuleId PartitionedParameters::new_module() {
  modules_.emplace_back();
  return modules_.size() - 1;
}

// --- gathering
// -------------------------------------------------------------------------------------------------------------

void PartitionedParameters::gather(const std::vector<ParamId>& params) {
  std::vector<ParamId> absent;
  for (const ParamId id : params) {
    if (params_[id].state == State::absent) absent.push_back(id);
  }
  for (const ParamId id : absent)
    live_ += static_cast<std::int64_t>(params_[id].elements);
  std::sort(absent.begin(), absent.end());
  if (absent.size() > 1 && options_.world > 1) {
    gather_together(absent);
    return;
  }
  for (const ParamId id : absent) {
    gather_one(params_[id], options_.overlap ? kZeroGatheredScope : "zero.gathered_in_order");
    params_[id].state = State::in_flight;
  }
}

// _all_gather_sequential: the parameter is a window on the gathered buffer. An offloaded partition passes through a
// temporary.
void PartitionedParameters::gather_one(Param& param, const char* scope) {
  {
    const Aside aside(tape_, scope, Category::weights);
    tape_.alloc_storage(param.whole, {{param.padded, Sym::none}}, OpKind::all_gather);
  }
  Tensor partition;
  if (options_.offload_parameters && options_.world > 1) {
    const Aside aside(tape_, "zero.offload_copy", Category::communication);
    partition = flat::buffer(tape_, OpKind::gather_copy_in, param.padded / options_.world, param.whole.dtype());
    copy_into(partition, param.partition);
  }
  const Tensor padded = flat::piece(param.whole, 0, param.padded);
  tape_.run(OpKind::all_gather, {partition ? &partition : &param.partition}, {&padded});
  param.state = State::available;
}

// _all_gather_coalesced, a buffer for each dtype.
void PartitionedParameters::gather_together(const std::vector<ParamId>& params) {
  const Aside aside(tape_, options_.overlap ? kZeroGatherScope : "zero.gather_in_order", Category::communication);
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32, DType::f64}) {
    const auto gather = std::make_shared<Gather>();
    std::uint64_t total = 0;
    for (const ParamId id : params) {
      if (params_[id].whole.dtype() != dtype) continue;
      gather->params.push_back(id);
      total = plus(total, params_[id].padded);
    }
    if (total == 0) continue;
    gather->flat = flat::buffer(tape_, OpKind::all_gather, total, dtype);
    Tensor partitions;
    if (options_.offload_parameters) {
      partitions = flat::buffer(tape_, OpKind::gather_copy_in, total / options_.world, dtype);
      std::uint64_t at = 0;
      for (const ParamId id : gather->params) {
        const std::uint64_t part = params_[id].padded / options_.world;
        copy_into(flat::piece(partitions, at, part), params_[id].partition);
        at += part;
      }
      tape_.run(OpKind::all_gather, {&partitions}, {&gather->flat});
    } else {
      std::vector<const Tensor*> parts;
      for (const ParamId id : gather->params)
        parts.push_back(&params_[id].partition);
      const Tensor* const out = &gather->flat;
      tape_.run(OpKind::gather_copy_in, parts, {&out, 1});
      tape_.run(OpKind::all_gather, {}, {&gather->flat});
    }
    for (const ParamId id : gather->params) {
      params_[id].state = State::in_flight;
      params_[id].flight = gather;
    }
  }
}

// The first of a buffer's parameters to be needed has all of them copied out; the buffer stays until the last is.
void PartitionedParameters::wait_for(Param& param) {
  const std::shared_ptr<Gather> gather = std::move(param.flight);
  param.flight.reset();
  param.state = State::available;
  if (gather == nullptr || gather->complete) return;
  const Aside aside(tape_, options_.overlap ? kZeroGatheredScope : "zero.gathered_in_order", Category::weights);
  Attr layout = flat::kCutFlat;
  for (const ParamId id : gather->params) {
    Param& other = params_[id];
    tape_.alloc_storage(other.whole, other.whole.shape(), OpKind::gather_copy_out);
    other.state = State::available;
    tape_.run(OpKind::gather_copy_out, {&gather->flat}, {&other.whole}, layout);
    layout.i[0] += static_cast<std::int64_t>(other.padded / options_.world);
  }
  gather->complete = true;
}

void PartitionedParameters::give_up(Param& param) {
  if (param.state != State::available || !param.active.empty()) return;
  tape_.free_storage(param.whole);
  param.state = State::absent;
  live_ -= static_cast<std::int64_t>(param.elements);
}

// --- the record
// -------------------------------------------------------------------------------------------------------------

void PartitionedParameters::start_pass() {
  for (Param& param : params_) {
    if (param.flight == nullptr && param.state != State::in_flight) continue;
    wait_for(param);
    give_up(param);
  }
  if (mode_ == Mode::record) complete_record();
  if (mode_ == Mode::idle) mode_ = Mode::record;
  for (Param& param : params_)
    param.recent = kNever;
  next_use_ = 0;
  step_ = live_ = 0;
}

void PartitionedParameters::complete_record() {
  mode_ = Mode::complete;
  for (std::size_t i = 0; i < order_.size(); ++i) {
    std::vector<ParamId> params = modules_[order_[i]].params;
    std::sort(params.begin(), params.end());
    for (const ParamId id : params)
      uses_.push_back({id, static_cast<std::int64_t>(i)});
  }
}

void PartitionedParameters::fetch(ModuleId id, bool forward) {
  if (mode_ == Mode::record) order_.push_back(id);
  if (!forward) add_once(in_backward_, id);
  const std::vector<ParamId>& params = modules_[id].params;
  gather(params);
  const bool recomputes = forward && tape_.in_backward() && !in_backward_.empty();
  for (const ParamId member : params) {
    Param& param = params_[member];
    add_once(param.active, id);
    if (recomputes && !param.trainable) add_once(modules_[in_backward_.back()].recomputed, member);
    if (param.flight != nullptr || param.state == State::in_flight) wait_for(param);
  }
  if (mode_ == Mode::complete) {
    skip_queue(modules_[id]);
    prefetch();
  }
  ++step_;
}

// What this module uses is taken off the queue, unless an earlier prefetch did.
void PartitionedParameters::skip_queue(const Module& module) {
  std::size_t waiting = 0;
  for (const ParamId id : module.params)
    waiting += params_[id].recent < step_ ? 1 : 0;
  std::vector<ParamId> taken;
  while (next_use_ < uses_.size() && taken.size() < waiting) {
    const Use& use = uses_[next_use_++];
    params_[use.param].recent = use.step;
    add_once(taken, use.param);
  }
}

void PartitionedParameters::prefetch() {
  const auto most = static_cast<std::int64_t>(options_.max_live) - live_;
  const std::int64_t limit = std::min(most, static_cast<std::int64_t>(options_.prefetch_bucket));
  std::vector<ParamId> ahead;
  std::int64_t elements = 0;
  while (next_use_ < uses_.size() && elements < limit) {
    const Use& use = uses_[next_use_++];
    Param& param = params_[use.param];
    param.recent = std::max(param.recent, use.step);
    if (param.state != State::absent || has(ahead, use.param)) continue;
    ahead.push_back(use.param);
    elements += static_cast<std::int64_t>(param.elements);
  }
  if (!ahead.empty()) gather(ahead);
}

// --- releasing
// -------------------------------------------------------------------------------------------------------------

// __params_to_release. While recording even persistent parameters go.
std::vector<PartitionedParameters::ParamId> PartitionedParameters::releasable(const Module& module) const {
  std::vector<ParamId> out;
  if (mode_ != Mode::complete) return module.params;
  for (const ParamId id : module.params) {
    if (!params_[id].persistent && params_[id].recent <= step_) out.push_back(id);
  }
  std::uint64_t passed = 0;
  for (auto i = static_cast<std::size_t>(step_); i < order_.size() && passed < options_.max_reuse; ++i) {
    for (const ParamId id : modules_[order_[i]].params) {
      std::erase(out, id);
      passed = plus(passed, params_[id].elements);
    }
    if (out.empty()) break;
  }
  return out;
}

void PartitionedParameters::release(ModuleId id, bool forward) {
  Module& module = modules_[id];
  std::vector<ParamId> out = releasable(module), members = module.params;
  if (!forward) {
    for (const ParamId member : module.recomputed) {
      if (!params_[member].persistent) add_once(out, member);
      add_once(members, member);
    }
    module.recomputed.clear();
    std::erase(in_backward_, id);
  }
  for (const ParamId member : members) {
    Param& param = params_[member];
    std::erase(param.active, id);
    if (has(out, member) && !param.external) give_up(param);
  }
}

void PartitionedParameters::release_leftovers() {
  while (!in_backward_.empty()) {
    const ModuleId id = in_backward_.back();
    in_backward_.pop_back();
    std::vector<ParamId> members = modules_[id].params;
    members.insert(members.end(), modules_[id].recomputed.begin(), modules_[id].recomputed.end());
    modules_[id].recomputed.clear();
    for (const ParamId member : members) {
      Param& param = params_[member];
      std::erase(param.active, id);
      if (!param.persistent && !param.external) give_up(param);
    }
  }
}

void PartitionedParameters::release_all() {
  for (Param& param : params_) {
    if (param.flight != nullptr || param.state == State::in_flight) wait_for(param);
    param.active.clear();
    give_up(param);
  }
}

void PartitionedParameters::gather_persistent() {
  for (Param& param : params_) {
    if (param.persistent && param.state == State::absent) gather_one(param, "zero.persistent");
  }
}

// ZeROOrderedDict.__getitem__, register_external_parameter: from now on the module's own as well, and not given up
// before the step.
void PartitionedParameters::read_by(ModuleId id, const Tensor& parameter) {
  Param& param = params_[id_of(parameter)];
  if (param.state == State::absent) {
    add_once(modules_[id].params, id_of(parameter));
    param.external = true;
    gather_one(param, "zero.persistent");
  }
}

}  // namespace ledger
