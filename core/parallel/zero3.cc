// zero3.cc - ZeRO-3: weights, gradients and optimizer states in partitions; every gradient goes through one bucket that
// stays. Source: DeepSpeed 0.19.6, runtime/zero/stage3.py, parameter_offload.py (hooks),
// runtime/comm/coalesced_collectives.py.

#include <algorithm>
#include <utility>

#include "core/parallel/partitioned_parameters.h"
#include "core/trace/module_hooks.h"
#include "core/trace/streams.h"

namespace ledger {
namespace {

class Zero3 final : public Zero, public ParameterUnits, public ModuleHooks {
 public:
  Zero3(Tape& tape, const ZeroOptions& options, const MakeStep& make_step)
      : tape_(tape), options_(options), make_step_(make_step), parameters_(tape, options) {
    for (ModuleId& module : root_)
      module = parameters_.new_module();
    tape.set_module_hooks(this);
  }
  ~Zero3() override { tape_.set_module_hooks(nullptr); }

  // Zero
  ParameterUnits* units() override { return this; }
  void wrap(const std::vector<Tensor>& trainable) override;
  void begin_forward() override { parameters_.start_pass(); }
  void begin_backward(bool boundary) override { boundary_ = boundary; }
  void end_backward() override;
  void step() override;

  // ParameterUnits: DeepSpeed knows modules, not units; the units stand for modules that only call others.
  void open(UnitId) override {}
  Tensor parameter(const std::string& name, const Shape& shape, DType dtype, Parameter::Role role, bool trainable,
                   Tensor& trained) override;
  Tensor before_forward(UnitId unit, const Tensor& input) override;
  void after_forward(UnitId unit, const Tensor& output) override;

  // ModuleHooks
  Tensor before_module(const ModuleCall& call, const Tensor& input) override;
  void after_module(const ModuleCall& call, const Tensor& output) override;
  void read_elsewhere(const Tensor& parameter) override { parameters_.read_by(root_[0], parameter); }

 private:
  using ModuleId = PartitionedParameters::ModuleId;
  struct Param {
    Tensor whole, partition;
    std::uint64_t elements = 0, part = 0;
    std::uint64_t offset = 0;  // in the flat buffers of partitions

    Tensor& gradient() const { return whole.impl()->grad; }
  };
  struct SubGroup {
    std::vector<std::size_t> params;
    std::uint64_t offset = 0, elements = 0;
    Tensor master;
    PartitionStep step;
  };

  std::span<const ModuleId> modules_of(UnitId unit);
  void before(ModuleId module) { parameters_.fetch(module, true); }
  void after(ModuleId module, const Tensor& output);

  void make_sub_groups();
  void add_sub_groups(const std::vector<std::size_t>& group);
  void flatten_partitions();
  void make_masters();
  void make_buffers();
  void offload();

  void on_gradient(const Param& param);
  void reduce();
  std::vector<Tensor> scatter(const std::vector<const Param*>& members);
  std::vector<Tensor> all_reduce(const std::vector<const Param*>& members);
  void keep(const Param& param, const Tensor& reduced);
  void keep_on_host(const Param& param, const Tensor& reduced);
  std::vector<Tensor> gradients_of(const SubGroup& group) const;
  void find_overflow();
  void update(SubGroup& group);

  Tape& tape_;
  ZeroOptions options_;
  MakeStep make_step_;
  PartitionedParameters parameters_;
  ModuleId root_[2] = {};  // the language model, and the decoder in it
  std::vector<ModuleId> layers_;
  std::vector<Param>
      params_;  // trainable, by their order in the model; their elements as DeepSpeed lays them out below
  std::vector<SubGroup> groups_;
  std::uint64_t total_ = 0;  // elements of all partitions
  Tensor flat_;              // lp_param_buffer
  Tensor bucket_, gradients_;
  std::vector<const Param*> members_;  // of the bucket
  std::uint64_t filled_ = 0;
  bool boundary_ = true, first_micro_batch_ = true;
};

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
  before(id);
  if (call.parameters.empty() || !input.requires_grad()) return input;
  return tape_.after_gradient_of(input, [this, id] { parameters_.release(id, false); });
}

void Zero3::after_module(const ModuleCall& call, const Tensor& output) {
  after(parameters_.module_of(call), output);
}

void Zero3::after(ModuleId id, const Tensor& output) {
  parameters_.release(id, true);
  if (tape_.grad_enabled() && output.requires_grad())
    tape_.before_gradient_of(output, [this, id] { parameters_.fetch(id, false); });
}

// --- initialize
// -------------------------------------------------------------------------------------------------------------

void Zero3::wrap(const std::vector<Tensor>&) {
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
  for (const Param& param : params_) {
    tape_.run(OpKind::optimizer_math, {&param.partition}, {});
    tape_.set_data(param.partition, flat::piece(nothing, 0, param.part));
  }
  tape_.empty_cache();
  flat_ = flat::buffer(tape_, OpKind::load_parameter, total_, dtype);
  tape_.run(OpKind::optimizer_math, {}, {&flat_});
  for (const Param& param : params_)
    tape_.set_data(param.partition, flat::piece(flat_, param.offset, param.part));
}

// _create_fp32_partitions: each is converted, and then copied; the name `converted` keeps the last one until the end.
// Partitions that are fp32 already are their own masters. initialize_optimizer_states has a gradient of the largest.
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
      if (own.dtype() == DType::f32) {
        group.master = own;
        continue;
      }
      converted = to(own, DType::f32);
      group.master = clone(converted);
    }
  }
  const Aside gradient(tape_, "zero.fp32_gradients", Category::gradients);
  zeros(tape_, {{largest, Sym::none}}, DType::f32);
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
}

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
  const std::vector<Tensor> reduced = whole ? all_reduce(members) : scatter(members);
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
  }
  const Tensor own = flat::piece(buffer, 0, parts);
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
std::vector<Tensor> Zero3::all_reduce(const std::vector<const Param*>& members) {
  const Aside aside(tape_, options_.overlap ? kZeroReduceScope : "zero.reduce_copy", Category::communication);
  std::uint64_t elements = 0;
  for (const Param* param : members)
    elements += param->elements;
  const Tensor bucket = flat::piece(bucket_, 0, elements);
  tape_.run(OpKind::all_reduce, {&bucket}, {&bucket});
  const Tensor scaled = bucket * 1.0;
  std::vector<Tensor> reduced;
  std::uint64_t at = 0;
  for (const Param* param : members) {
    reduced.push_back(flat::piece(scaled, at, param->part));
    at += param->elements;
  }
  return reduced;
}

void Zero3::keep(const Param& param, const Tensor& reduced) {
  const Tensor place = flat::piece(gradients_, param.offset, param.part);
  if (first_micro_batch_) {
    copy_into(place, reduced);
  } else {
    add_inplace(place, reduced);
  }
}

// The sum with earlier micro-batches' is made on the GPU, and at the last one the norm and the fp32 copy to be sent.
void Zero3::keep_on_host(const Param&, const Tensor& reduced) {
  Tensor sum;
  {
    const Aside aside(tape_, "zero.offload_copy", Category::communication);
    sum = clone(reduced);
    tape_.run(OpKind::optimizer_math, {&sum}, {});
  }
  if (!boundary_) return;
  zero::norm_of(tape_, {sum});
  const Aside aside(tape_, "zero.offload_copy", Category::communication);
  const Tensor copy = to(sum, DType::f32);
  tape_.run(OpKind::optimizer_math, {&copy}, {});
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
  if (!options_.offload_optimizer) {
    if (options_.dtype == DType::f16) find_overflow();
    for (const SubGroup& group : groups_)
      zero::norm_of(tape_, gradients_of(group));
  }
  for (SubGroup& group : groups_)
    update(group);
  parameters_.gather_persistent();
}

// _prepare_fp32_grad_for_sub_group and what follows; an offloaded step takes nothing of the GPU.
void Zero3::update(SubGroup& group) {
  if (options_.offload_optimizer) {
    if (flat_) {
      const Tensor own = flat::piece(flat_, group.offset, group.elements);
      tape_.run(OpKind::optimizer_math, {}, {&own});
    }
    return;
  }
  {
    const Aside aside(tape_, "zero.fp32_gradients", Category::gradients);
    const std::vector<Tensor> gradients = gradients_of(group);
    const Tensor flat = gradients.size() == 1 ? gradients.front() : cat(gradients, 0, {group.elements, Sym::none});
    group.master.impl()->grad = to(flat, DType::f32);
  }
  zero::unscale_and_clip(tape_, group.master.grad(), options_.clips);
  group.step({group.master});
  const Aside aside(tape_, "zero.param_partitions", Category::weights);
  const Tensor own = flat::piece(flat_, group.offset, group.elements);
  if (own.dtype() != DType::f32) copy_into(own, group.master);
  group.master.clear_grad();
}

}  // namespace

std::unique_ptr<Zero> make_zero3(Tape& tape, const ZeroOptions& options, const MakeStep& make_step) {
  return std::make_unique<Zero3>(tape, options, make_step);
}

}  // namespace ledger
