// fsdp1.h - torch.distributed.fsdp.FullyShardedDataParallel as one rank lives it: one flat parameter a unit, of which
// each GPU keeps a piece; gathered whole before the unit runs, its gradient flat as well.
//
// Source: torch/distributed/fsdp/{_runtime_utils,_flat_param}.py (2.14), with what accelerate sets: use_orig_params,
// decoder layers wrapped, everything else in the root, backward_prefetch BACKWARD_PRE, no_sync while accumulating.
// A flat parameter cannot be trained in part. With adapters PEFT therefore turns use_orig_params off and wraps every
// trainable leaf, lora_A and lora_B, in a unit of its own (peft/utils/other.py, fsdp_auto_wrap_policy); units without a
// trained parameter give their weights up when the gradient of their input is there.
// Offloaded, each gathering brings the shard to the GPU first, in its own dtype where it is cast there; reduced
// gradients are copied back as they come and stay on the GPU until backward ends; clipping and the optimizer's step are
// the host's. Not here: record_stream(), and limit_all_gathers, which holds back the CPU, not memory in this order of
// events. In the first forward pass alone PEFT sees leaves in their shards' dtype and casts their input to it and back.
#pragma once

#include <map>
#include <vector>

#include "core/models/parameter_units.h"
#include "core/trace/module_hooks.h"

namespace ledger {

class Fsdp1 : public ParameterUnits, public ModuleHooks {
 public:
  struct Options {
    std::uint64_t world = 1, rank = 0;
    DType param_dtype = DType::bf16;    // MixedPrecision: of gathered parameters and so of gradients
    DType reduce_dtype = DType::bf16;   // of the reduce-scatter
    bool reshard_after_forward = true;  // FULL_SHARD; else SHARD_GRAD_OP
    bool adapters = false;              // trained beside a frozen base
    bool offload = false;               // CPUOffload(offload_params=True): shards and their gradients in host memory
  };

  Fsdp1(Tape& tape, Options options) : tape_(tape), options_(options) {
    if (options.adapters) tape.set_module_hooks(this);
  }
  ~Fsdp1() override {
    if (options_.adapters) tape_.set_module_hooks(nullptr);
  }

  void open(UnitId unit) override { open_ = unit >= kFirstLayerUnit ? unit : kRootUnit; }
  Tensor parameter(const std::string& name, const Shape& shape, DType dtype, Parameter::Role role, bool trainable,
                   Tensor& trained) override;
  Tensor packed(const std::string& name, Bytes bytes, const FillCodes& fill) override;
  Tensor before_forward(UnitId unit, const Tensor& input) override;
  void after_forward(UnitId unit, const Tensor& output) override;

  // ModuleHooks, for leaves that are units.
  Tensor before_module(const ModuleCall& call, const Tensor& input) override;
  void after_module(const ModuleCall& call, const Tensor& output) override;
  void read_elsewhere(const Tensor&) override {}

  // Wraps the model once it is made. What the optimizer gets: of every parameter what lies in this rank's pieces.
  std::vector<Tensor> wrap();
  void set_sync(bool reduce) { sync_ = reduce; }  // false: within no_sync()

 private:
  struct Param {
    Tensor whole, piece;  // views of the unit's flat parameter, and of its shard
    Shape shape;
    std::uint64_t offset = 0, elements = 0;  // in the flat parameter
    std::uint64_t start = 0, local = 0;      // of the piece, in the shard
    std::size_t number = 0;                  // in Trace::parameters
    Bytes codes = 0;                         // of a packed weight, and what writes them
    FillCodes fill;
  };
  struct Unit {
    std::vector<Param> params;
    DType dtype = DType::f32;  // of the shard
    std::uint64_t elements = 0, part = 0;
    Tensor flat, shard;       // flat: without memory while resharded
    Tensor gradient;          // unsharded, of earlier micro-batches
    Tensor reduced;           // _saved_grad_shard
    Tensor host_gradient;     // _cpu_grad
    std::size_t arrived = 0;  // gradients of this backward pass
    bool trained = false;
    bool gathered = false, in_backward = false, wanted = false;  // wanted: by a backward pass to come
  };

  Unit* unit_of(UnitId unit);
  Unit* leaf_of(const ModuleCall& call);
  template <class Visit>
  void for_each_unit(const Visit& visit);
  void seal(Unit& unit);
  void place(Unit& unit, Param& param);
  void own(const Unit& unit, Param& param, std::uint64_t elements);
  void load(const Unit& unit, const Tensor& flat);
  void to_host(Unit& unit);
  Tensor sent_shard(const Unit& unit);
  void unshard(Unit& unit);
  void reshard(Unit& unit);
  Tensor before(Unit& unit, const Tensor& input);
  void after(Unit& unit, const Tensor& output);
  void pre_backward(Unit& unit);
  void post_backward(Unit& unit);
  void on_gradient(Unit& unit);
  void reduce(Unit& unit, Tensor gradient);
  void end_of_backward();

  Tape& tape_;
  Options options_;
  std::vector<Unit> units_;   // the root first
  std::vector<Unit> leaves_;  // a parameter each
  std::map<std::int32_t, std::size_t> leaf_by_parameter_;
  std::vector<Unit*> order_;  // units, as they first ended forward
  UnitId open_ = kRootUnit;
  bool sync_ = true, callback_queued_ = false;
};

}  // namespace ledger
