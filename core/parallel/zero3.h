// zero3.h - ZeRO-3: weights, gradients and optimizer states in partitions; every gradient goes through one bucket that
// stays. Source: DeepSpeed 0.19.6, runtime/zero/stage3.py, parameter_offload.py (hooks),
// runtime/comm/coalesced_collectives.py.

#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/parallel/host_step.h"
#include "core/parallel/partitioned_parameters.h"
#include "core/trace/module_hooks.h"

namespace ledger {

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
  void begin_forward() override {
    running_.clear();
    parameters_.start_pass();
  }
  void begin_backward(bool boundary) override { boundary_ = boundary; }
  void end_backward() override;
  void step() override;

  // ParameterUnits: DeepSpeed knows modules, not units; the units stand for modules that only call others.
  void open(UnitId) override {}
  Tensor parameter(const std::string& name, const Shape& shape, DType dtype, Parameter::Role role, bool trainable,
                   Tensor& trained) override;
  Tensor packed(const std::string& name, Bytes bytes, const FillCodes& fill) override;
  Tensor before_forward(UnitId unit, const Tensor& input) override;
  void after_forward(UnitId unit, const Tensor& output) override;

  // ModuleHooks
  Tensor before_module(const ModuleCall& call, const Tensor& input) override;
  void after_module(const ModuleCall& call, const Tensor& output) override;
  void read_elsewhere(const Tensor& parameter) override;

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
  std::vector<Tensor> all_reduce_bucket(const std::vector<const Param*>& members);
  void keep(const Param& param, const Tensor& reduced);
  void keep_on_host(const Param& param, const Tensor& reduced);
  std::vector<Tensor> gradients_of(const SubGroup& group) const;
  void find_overflow();
  void update(SubGroup& group, const Tensor& norm);
  void step_on_host();

  Tape& tape_;
  ZeroOptions options_;
  MakeStep make_step_;
  PartitionedParameters parameters_;
  std::vector<ModuleId> running_;  // FWD_MODULE_STACK, without those that stand for units
  ModuleId root_[2] = {};          // the language model, and the decoder in it
  std::vector<ModuleId> layers_;
  std::vector<Param>
      params_;  // trainable, by their order in the model; their elements as DeepSpeed lays them out below
  std::vector<SubGroup> groups_;
  std::uint64_t total_ = 0;  // elements of all partitions
  Tensor flat_;              // lp_param_buffer
  Tensor bucket_, gradients_;
  std::optional<HostStep> host_;       // of all partitions
  std::vector<const Param*> members_;  // of the bucket
  std::uint64_t filled_ = 0;
  bool boundary_ = true, first_micro_batch_ = true;
};

}  // namespace ledger
