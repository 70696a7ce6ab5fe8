// zero3.cc - modules and their parameters, and what deepspeed.initialize makes; the rest is in zero3_gradients.cc.

#include "core/parallel/zero3.h"

#include <algorithm>
#include <utility>

namespace ledger {

// --- modules
// ----------------------------------------------------------------------------------------------------------------

Tensor Zero3::parameter(const std::string& name, const Shape& shape, DType dtype, Parameter::Role role, bool trainable,
                        Tensor& trained) {
  Tensor whole = parameters_.add(name, shape, dtype, role, trainable, trained);
  if (trainable) {
    const std::uint64_t elements = shape.numel();
    params_.push_back({whole, trained, elements, divide_up(elements, options_.world), 0});
  }
  return whole;
}

Tensor Zero3::packed(const std::string& name, Bytes bytes, const FillCodes& fill) {
  return parameters_.add_packed(name, storage_of(bytes, options_.dtype), options_.dtype, bytes, fill);
}

std::span<const Zero3::ModuleId> Zero3::modules_of(UnitId unit) {
  if (unit == kRootUnit) return root_;
  if (unit < kFirstLayerUnit) return {};
  const std::size_t layer = unit - kFirstLayerUnit;
  while (layers_.size() <= layer)
    layers_.push_back(parameters_.new_module());
  return std::span(layers_).subspan(layer, 1);
}

Tensor Zero3::before_forward(UnitId unit, const Tensor& input) {
  if (tape_.module_hooks() == nullptr) return input;
  for (const ModuleId module : modules_of(unit))
    before(module);
  return input;
}

void Zero3::after_forward(UnitId unit, const Tensor& output) {
  if (tape_.module_hooks() == nullptr) return;
  for (const ModuleId module : modules_of(unit))
    after(module, output);
}

Tensor Zero3::before_module(const ModuleCall& call, const Tensor& input) {
  const ModuleId id = parameters_.module_of(call);
  running_.push_back(id);
  before(id);
  if (call.parameters.empty() || !input.requires_grad()) return input;
  return tape_.after_gradient_of(input, [this, id] { parameters_.release(id, false); });
}

void Zero3::after_module(const ModuleCall& call, const Tensor& output) {
  const ModuleId id = parameters_.module_of(call);
  while (!running_.empty()) {  // what a recomputation left early is still among them
    const ModuleId last = running_.back();
    running_.pop_back();
    if (last == id) break;
  }
  after(id, output);
}

// Of whose module the parameter is from now on, too.
void Zero3::read_elsewhere(const Tensor& parameter) {
  parameters_.read_by(running_.empty() ? root_[0] : running_.back(), parameter);
}

void Zero3::after(ModuleId id, const Tensor& output) {
  parameters_.release(id, true);
  if (tape_.grad_enabled() && output.requires_grad())
    tape_.before_gradient_of(
        output, [this, id] { parameters_.fetch(id, false); }, Tape::HookOrder::newest_first);
}

// --- initialize
// -------------------------------------------------------------------------------------------------------------

void Zero3::wrap(const std::vector<Tensor>&) {
  parameters_.partition_loaded();
  make_sub_groups();
  if (!options_.offload_parameters) flatten_partitions();
  make_masters();
  make_buffers();
  if (options_.offload_optimizer) offload();
  for (const Param& param : params_)
    tape_.after_accumulation(param.whole, [this, &param](Tensor&) { on_gradient(param); });
  parameters_.gather_each_once();
}

void Zero3::make_sub_groups() {
  std::vector<Tensor> partitions;
  for (const Param& param : params_)
    partitions.push_back(param.whole);
  for (const std::vector<std::size_t>& group : zero::parameter_groups(partitions))
    add_sub_groups(group);
}

// _create_fp16_sub_groups
void Zero3::add_sub_groups(const std::vector<std::size_t>& group) {
  SubGroup current;
  for (const std::size_t member : group) {
    Param& param = params_[member];
    param.offset = total_;
    if (current.params.empty()) current.offset = total_;
    current.params.push_back(member);
    current.elements = plus(current.elements, param.part);
    total_ = plus(total_, param.part);
    if (current.elements < options_.sub_group && member != group.back()) continue;
    groups_.push_back(std::exchange(current, {}));
  }
}

// zero/utils.py, defragment: by way of host memory, so that nothing is on the GPU twice.
void Zero3::flatten_partitions() {
  const Aside aside(tape_, "zero.param_partitions", Category::weights);
  const DType dtype = params_.front().whole.dtype();
  const Tensor nothing = tape_.unbacked({{total_, Sym::none}}, dtype);
  std::int64_t number = 0;
  for (const Param& param : params_) {
    tape_.run(OpKind::copy_to_host, {&param.partition}, {}, {0, {--number, 0}});
    tape_.set_data(param.partition, flat::piece(nothing, 0, param.part));
  }
  tape_.empty_cache();
  flat_ = flat::buffer(tape_, OpKind::load_parameter, total_, dtype);
  number = 0;
  for (const Param& param : params_) {
    tape_.set_data(param.partition, flat::piece(flat_, param.offset, param.part));
    tape_.run(OpKind::copy_from_host, {}, {&param.partition}, {0, {--number, 0}});
    Parameter& parameter = tape_.trace().parameters[static_cast<std::size_t>(param.partition.impl()->parameter)];
    parameter.storage = flat_.impl()->storage->id;
    parameter.offset = param.offset;
  }
}

// _create_fp32_partitions: each is converted, and then copied; the name `converted` keeps the last one until the end.
// Partitions in the masters' dtype already are their own masters. Up to 0.18.2 each was copied, and then converted.
// initialize_optimizer_states has a gradient of the largest.
void Zero3::make_masters() {
  if (options_.offload_optimizer) return;
  const Aside aside(tape_, "zero.master_partition", Category::master_weights);
  std::uint64_t largest = 0;
  {
    Tensor converted;
    for (SubGroup& group : groups_) {
      largest = std::max(largest, group.elements);
      const Tensor own = flat::piece(flat_, group.offset, group.elements);
      group.step = make_step_();
      if (options_.clones_first) {
        group.master = clone(own);
        if (own.dtype() != zero::master_dtype(own.dtype()))
          group.master = to(group.master, zero::master_dtype(own.dtype()));
        continue;
      }
      if (own.dtype() == zero::master_dtype(own.dtype())) {
        group.master = own;
        continue;
      }
      converted = to(own, zero::master_dtype(own.dtype()));
      group.master = clone(converted);
    }
  }
  const Aside gradient(tape_, "zero.fp32_gradients", Category::gradients);
  zeros(tape_, {{largest, Sym::none}}, zero::master_dtype(options_.dtype));
}

void Zero3::make_buffers() {
  {
    const Aside aside(tape_, "zero.reduce_bucket", Category::communication);
    bucket_ = flat::buffer(tape_, OpKind::reduce_copy_in, options_.reduce_bucket, options_.dtype);
  }
  if (options_.offload_optimizer) return;
  const Aside aside(tape_, "zero.gradient_partitions", Category::gradients);
  gradients_ = zeros(tape_, {{total_, Sym::none}}, options_.dtype);
}

void Zero3::offload() {
  std::vector<HostBuffer>& host = tape_.trace().host;
  if (options_.offload_parameters)
    host.push_back({"zero.param_partitions", Category::weights, params_.front().whole.dtype(), total_});
  host.push_back({"zero.master_partition", Category::master_weights, DType::f32, total_});
  host.push_back({"zero.fp32_gradients", Category::gradients, DType::f32, total_});
  host.push_back({"zero.gradient_partitions", Category::gradients, options_.dtype, total_});
  host.push_back({"zero.exp_avg", Category::optimizer_states, DType::f32, total_});
  host.push_back({"zero.exp_avg_sq", Category::optimizer_states, DType::f32, total_});
  host_.emplace(tape_, total_, zero::master_dtype(options_.dtype));
  for (const Param& param : params_)
    copy_into(host_->master(param.offset, param.part), param.partition);
}

std::unique_ptr<Zero> make_zero3(Tape& tape, const ZeroOptions& options, const MakeStep& make_step) {
  return std::make_unique<Zero3>(tape, options, make_step);
}

}  // namespace ledger
