#include "core/parallel/fsdp1.h"

#include <algorithm>
#include <utility>

#include "core/parallel/flat.h"
#include "core/trace/streams.h"

namespace ledger {
// --- flat parameters
// --------------------------------------------------------------------------------------------------------------

Fsdp1::Unit* Fsdp1::unit_of(UnitId unit) {
  if (unit != kRootUnit && unit < kFirstLayerUnit) return nullptr;
  const std::size_t index = unit == kRootUnit ? 0 : unit - kFirstLayerUnit + 1;
  if (index >= units_.size()) units_.resize(index + 1);
  return &units_[index];
}

Fsdp1::Unit* Fsdp1::leaf_of(const ModuleCall& call) {
  for (const Tensor* parameter : call.parameters) {
    if (!*parameter) continue;
    const auto found = leaf_by_parameter_.find(parameter->impl()->parameter);
    if (found != leaf_by_parameter_.end()) return &leaves_[found->second];
  }
  return nullptr;
}

// Children before those that hold them; the root is wrapped last.
template <class Visit>
void Fsdp1::for_each_unit(const Visit& visit) {
  for (Unit& leaf : leaves_)
    visit(leaf);
  for (std::size_t i = units_.size(); i-- > 0;)
    visit(units_[i]);
}

Tensor Fsdp1::parameter(const std::string& name, const Shape& shape, DType dtype, Parameter::Role role, bool trainable,
                        Tensor& trained) {
  const bool leaf = trainable && options_.adapters;
  Unit& unit = leaf ? leaves_.emplace_back() : *unit_of(open_);
  Param param;
  param.shape = shape;
  param.elements = shape.numel();
  param.offset = unit.elements;
  param.whole = tape_.unbacked(shape, options_.param_dtype);
  param.whole.impl()->requires_grad = trainable;
  param.whole.impl()->parameter = static_cast<std::int32_t>(tape_.trace().parameters.size());
  param.piece = tape_.unbacked(shape, dtype);
  param.number = tape_.trace().parameters.size();
  tape_.trace().parameters.push_back({name, kNoStorage, kNoStorage, role, trainable, param.elements});
  if (leaf) leaf_by_parameter_[param.whole.impl()->parameter] = leaves_.size() - 1;
  unit.dtype = dtype;
  unit.trained = unit.trained || trainable;
  unit.elements = plus(unit.elements, param.elements);
  trained = param.piece;
  unit.params.push_back(std::move(param));
  return unit.params.back().whole;
}

Tensor Fsdp1::packed(const std::string& name, Bytes bytes, const FillCodes& fill) {
  Tensor unused;
  const DType dtype = options_.param_dtype;
  Tensor whole = parameter(name, storage_of(bytes, dtype), dtype, Parameter::Role::matrix, false, unused);
  Param& param = unit_of(open_)->params.back();
  param.codes = bytes;
  param.fill = fill;
  return whole;
}

std::vector<Tensor> Fsdp1::wrap() {
  for_each_unit([this](Unit& unit) { seal(unit); });
  std::vector<Tensor> pieces;
  const auto add = [&](Unit& unit) {
    for (Param& param : unit.params) {
      if (!options_.adapters ? param.local != 0 : unit.trained) pieces.push_back(param.piece);
      if (unit.trained) tape_.after_accumulation(param.whole, [this, &unit](Tensor&) { on_gradient(unit); });
    }
  };
  for (Unit& unit : units_)
    add(unit);
  for (Unit& leaf : leaves_)
    add(leaf);
  return pieces;
}

// _init_flat_param_and_metadata, shard: the unit's parameters on the GPU, all of them flat, and a piece of that.
void Fsdp1::seal(Unit& unit) {
  if (unit.params.empty()) return;
  unit.part = divide_up(unit.elements, options_.world);
  unit.flat = tape_.unbacked(flat::shape(times(unit.part, options_.world)), options_.param_dtype);
  const Aside aside(tape_, "fsdp.flat_param", Category::weights);
  Tensor flat;
  {
    std::vector<Tensor> moved;
    for (Param& param : unit.params) {
      moved.push_back(tape_.empty(OpKind::load_parameter, param.shape, unit.dtype));
      if (param.fill) param.fill(as_bytes(moved.back(), param.codes));
    }
    flat = tape_.empty(OpKind::cat, flat::shape(unit.elements), unit.dtype);
    for (std::size_t i = 0; i < moved.size(); ++i) {
      const Param& param = unit.params[i];
      if (param.fill) copy_into(flat::piece(flat, param.offset, param.elements), flat::flattened(moved[i]));
    }
  }
  unit.shard = tape_.empty(OpKind::load_parameter, flat::shape(unit.part), unit.dtype);
  for (Param& param : unit.params)
    place(unit, param);
  load(unit, flat);
  for (Param& param : unit.params)
    param.fill = nullptr;
  if (options_.offload) to_host(unit);
}

// _init_param_handle_from_params; init_flat_param_attributes makes a place for the gradient at the first forward pass.
void Fsdp1::to_host(Unit& unit) {
  const Tensor made = unit.shard;
  std::vector<HostBuffer>& host = tape_.trace().host;
  {
    const Tape::OnHost on_host(tape_);
    unit.shard = tape_.empty(OpKind::load_parameter, made.shape(), unit.dtype);
    const Tape::In in(tape_, Category::gradients);
    if (unit.trained) unit.host_gradient = zeros(tape_, made.shape(), unit.dtype);
  }
  copy_into(unit.shard, made);
  for (Param& param : unit.params)
    place(unit, param);
  host.push_back({unit.trained ? "fsdp.shards" : "fsdp.frozen_shards", Category::weights, unit.dtype, unit.part});
  if (unit.trained) host.push_back({"fsdp.shard_gradients", Category::gradients, unit.dtype, unit.part});
}

// _get_shard_metadata: of the flat parameter this rank's shard, of the parameter what lies in it.
void Fsdp1::place(Unit& unit, Param& param) {
  tape_.set_data(param.whole, flat::shaped(unit.flat, param.shape, param.offset));
  const std::uint64_t begin = times(unit.part, options_.rank);
  const std::uint64_t from = std::max(begin, param.offset);
  const std::uint64_t to = std::min(plus(begin, unit.part), plus(param.offset, param.elements));
  if (from >= to) {
    if (options_.adapters) own(unit, param, unit.part);
    return;
  }
  param.start = from - begin;
  param.local = to - from;
  own(unit, param, options_.adapters ? unit.part : param.local);
  Parameter& parameter = tape_.trace().parameters[param.number];
  parameter.storage = unit.shard.impl()->storage->id;
  parameter.first = from - param.offset;
  parameter.held = param.local;
  parameter.offset = param.start;
}

// What the optimizer updates: the parameter's piece of the shard; with use_orig_params off all of it, padding too.
void Fsdp1::own(const Unit& unit, Param& param, std::uint64_t elements) {
  const std::uint64_t start = options_.adapters ? 0 : param.start;
  if (options_.adapters && !unit.trained) return;
  param.piece.impl()->shape = flat::shape(elements);
  tape_.set_data(param.piece, flat::piece(unit.shard, start, elements));
}

// The shard's contents: pieces of parameters, and padding behind the last.
void Fsdp1::load(const Unit& unit, const Tensor& flat) {
  std::uint64_t filled = 0;
  for (const Param& param : unit.params) {
    if (param.local == 0) continue;
    const Tensor place = flat::piece(unit.shard, param.start, param.local);
    if (param.fill) {
      copy_into(place, flat::piece(flat, plus(times(unit.part, options_.rank), param.start), param.local));
    } else {
      tape_.run(OpKind::load_parameter, {}, {&place}, {0, {static_cast<std::int64_t>(param.number), 0}});
    }
    filled = param.start + param.local;
  }
  if (filled == unit.part) return;
  const Tensor padding = flat::piece(unit.shard, filled, unit.part - filled);
  tape_.run(OpKind::zeros, {}, {&padding});
}

// --- gathering
// --------------------------------------------------------------------------------------------------------------

// FlatParamHandle.pre_unshard, _use_low_precision_shard: shards in another dtype are cast first, those in host memory
// brought here, for as long as the all-gather takes.
Tensor Fsdp1::sent_shard(const Unit& unit) {
  const bool casts = unit.dtype != options_.param_dtype;
  if (!casts && !options_.offload) return unit.shard;
  const Aside aside(tape_, kAllGatherScope, Category::communication);
  const Tensor sent = tape_.empty(OpKind::gather_copy_in, flat::shape(unit.part), options_.param_dtype);
  Tensor here = unit.shard;
  if (casts && options_.offload) {
    here = tape_.empty(OpKind::gather_copy_in, flat::shape(unit.part), unit.dtype);
    copy_into(here, unit.shard);
  }
  copy_into(sent, here);
  return sent;
}

void Fsdp1::unshard(Unit& unit) {
  if (unit.gathered || unit.params.empty()) return;
  unit.gathered = true;
  const Tensor sent = sent_shard(unit);
  const Aside aside(tape_, kAllGatherScope, Category::weights);
  tape_.alloc_storage(unit.flat, unit.flat.shape(), OpKind::all_gather);
  tape_.run(OpKind::all_gather, {&sent}, {&unit.flat});
}

void Fsdp1::reshard(Unit& unit) {
  if (!unit.gathered) return;
  tape_.free_storage(unit.flat);
  unit.gathered = false;
}

// --- hooks
// --------------------------------------------------------------------------------------------------------------

Tensor Fsdp1::before_forward(UnitId id, const Tensor& input) {
  Unit* const unit = unit_of(id);
  return unit == nullptr ? input : before(*unit, input);
}

void Fsdp1::after_forward(UnitId id, const Tensor& output) {
  if (Unit* const unit = unit_of(id)) after(*unit, output);
}

Tensor Fsdp1::before_module(const ModuleCall& call, const Tensor& input) {
  Unit* const leaf = leaf_of(call);
  return leaf == nullptr ? input : before(*leaf, input);
}

void Fsdp1::after_module(const ModuleCall& call, const Tensor& output) {
  if (Unit* const leaf = leaf_of(call)) after(*leaf, output);
}

// _register_post_backward_reshard_only_hook: on the input, of units without a trained parameter.
Tensor Fsdp1::before(Unit& unit, const Tensor& input) {
  if (unit.in_backward) return input;
  unshard(unit);
  if (unit.trained || !tape_.grad_enabled() || !input || !input.requires_grad()) return input;
  const auto hook = [this, &unit] { post_backward(unit); };
  if (input.impl()->grad_fn == nullptr) return tape_.after_gradient_of(input, hook);
  tape_.before_gradient_of(input, hook);
  return input;
}

// The root is never given up after forward.
void Fsdp1::after(Unit& unit, const Tensor& output) {
  if (unit.in_backward) return;
  if (&unit != &units_.front() && options_.reshard_after_forward) reshard(unit);
  if (std::find(order_.begin(), order_.end(), &unit) == order_.end()) order_.push_back(&unit);
  unit.wanted = tape_.grad_enabled() && output.requires_grad();
  if (unit.wanted) tape_.before_gradient_of(output, [this, &unit] { pre_backward(unit); });
}

// BACKWARD_PRE: the unit that ended forward before this one is gathered before this one's gradients are computed.
void Fsdp1::pre_backward(Unit& unit) {
  if (unit.in_backward) return;
  unit.in_backward = true;
  if (!std::exchange(callback_queued_, true)) tape_.at_backward_end([this] { end_of_backward(); });
  if (std::exchange(unit.wanted, false)) unshard(unit);
  const auto place = std::find(order_.begin(), order_.end(), &unit);
  if (place == order_.begin() || place == order_.end()) return;
  Unit& previous = **(place - 1);
  if (previous.wanted) unshard(previous);
}

// _post_backward_reshard, _should_free_in_backward: what is kept after forward is kept until gradients are reduced.
void Fsdp1::post_backward(Unit& unit) {
  if (sync_ || options_.reshard_after_forward) reshard(unit);
}

// --- gradients
// --------------------------------------------------------------------------------------------------------------

// The parameters are views of the flat one (torch.split): their gradients wait for each other, and are then joined.
void Fsdp1::on_gradient(Unit& unit) {
  if (++unit.arrived < unit.params.size()) return;
  unit.arrived = 0;
  Tensor gradient;
  {
    const Aside aside(tape_, "fsdp.flat_gradient", Category::gradients);
    gradient = tape_.empty(OpKind::cat, flat::shape(unit.elements), options_.param_dtype);
    for (const Param& param : unit.params)
      copy_into(flat::shaped(gradient, param.shape, param.offset), param.whole.grad());
  }
  for (Param& param : unit.params)
    param.whole.clear_grad();
  if (unit.gradient) {
    add_inplace(unit.gradient, gradient);
    gradient = std::move(unit.gradient);
  }
  post_backward(unit);
  if (sync_) {
    reduce(unit, std::move(gradient));
  } else {
    unit.gradient = std::move(gradient);
  }
}

// _post_backward_hook. Names that Python's function leaves bound keep the computed gradient to its end.
void Fsdp1::reduce(Unit& unit, Tensor gradient) {
  const Aside aside(tape_, kReduceScatterScope, Category::gradients);
  const Tensor unsharded = to(gradient, options_.reduce_dtype);
  const std::uint64_t padded = times(unit.part, options_.world);
  Tensor input = unsharded;
  if (padded != unit.elements) {
    input = tape_.empty(OpKind::reduce_copy_in, flat::shape(padded), options_.reduce_dtype);
    tape_.run(OpKind::reduce_copy_in, {&unsharded}, {&input}, flat::kCutFlat);
  }
  Tensor reduced = tape_.empty(OpKind::reduce_scatter, flat::shape(unit.part), options_.reduce_dtype);
  tape_.run(OpKind::reduce_scatter, {&input}, {&reduced});
  reduced = to(reduced, unit.dtype);
  unit.reduced = std::move(reduced);
  if (options_.offload) copy_into(unit.host_gradient, unit.reduced);  // _offload_grad
}

// _post_backward_final_callback, _finalize_params: the optimizer's parameters get views of the reduced gradients.
void Fsdp1::end_of_backward() {
  for_each_unit([this](Unit& unit) {
    post_backward(unit);
    unit.in_backward = unit.wanted = false;
    if (!unit.reduced) return;
    const Tensor& gradient = options_.offload ? unit.host_gradient : unit.reduced;
    for (Param& param : unit.params) {
      if (options_.adapters) {
        param.piece.impl()->grad = gradient;
      } else if (param.local != 0) {
        param.piece.impl()->grad = flat::piece(gradient, param.start, param.local);
      }
    }
    unit.reduced.reset();
  });
  order_.clear();
  callback_queued_ = false;
}

}  // namespace ledger
