// fsdp1.h - torch.distributed.fsdp.FullyShardedDataParallel as one rank lives it: one flat parameter a unit, of which
// each GPU keeps a piece; gathered whole before the unit runs, its gradient flat as well.
//
// Source: torch/distributed/fsdp/{_runtime_utils,_flat_param}.py (2.14), with what accelerate sets: use_orig_params,
// decoder layers wrapped, everything else in the root, backward_prefetch BACKWARD_PRE, no_sync while accumulating.
// Not here: record_stream(), and limit_all_gathers, which holds back the CPU, not memory in this order of events.
#pragma once

#include <vector>

#include "core/models/parameter_units.h"

namespace ledger {

class Fsdp1 : public ParameterUnits {
 public:
  struct Options {
    std::uint64_t world = 1, rank = 0;
    DType param_dtype = DType::bf16;    // MixedPrecision: of gathered parameters and so of gradients
    DType reduce_dtype = DType::bf16;   // of the reduce-scatter
    bool reshard_after_forward = true;  // FULL_SHARD; else SHARD_GRAD_OP
  };

  Fsdp1(Tape& tape, Options options) : tape_(tape), options_(options) {}

  void open(UnitId unit) override { open_ = unit >= kFirstLayerUnit ? unit : kRootUnit; }
  Tensor parameter(const std::string& name, const Shape& shape, DType dtype, Parameter::Role role, bool trainable,
                   Tensor& trained) override;
  Tensor before_forward(UnitId unit, const Tensor& input) override;
  void after_forward(UnitId unit, const Tensor& output) override;

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
  };
  struct Unit {
    std::vector<Param> params;
    DType dtype = DType::f32;  // of the shard
    std::uint64_t elements = 0, part = 0;
    Tensor flat, shard;       // flat: without memory while resharded
    Tensor gradient;          // unsharded, of earlier micro-batches
    Tensor reduced;           // _saved_grad_shard
    std::size_t arrived = 0;  // gradients of this backward pass
    bool gathered = false, in_backward = false;
  };

  Unit* unit_of(UnitId unit);
  void seal(Unit& unit);
  void place(Unit& unit, Param& param);
  void load(const Unit& unit);
  void unshard(Unit& unit);
  void reshard(Unit& unit);
  void pre_backward(std::size_t index);
  void on_gradient(Unit& unit);
  void reduce(Unit& unit, Tensor gradient);
  void end_of_backward();

  Tape& tape_;
  Options options_;
  std::vector<Unit> units_;         // the root first
  std::vector<std::size_t> order_;  // units, as they ended forward
  UnitId open_ = kRootUnit;
  bool sync_ = true, callback_queued_ = false;
};

}  // namespace ledger
