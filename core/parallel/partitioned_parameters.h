// partitioned_parameters.h - ZeRO-3's parameters on one rank: a partition of each that stays, and the whole of it while
// some module needs it, or soon will.
//
// Source: DeepSpeed 0.19.6, runtime/zero/partition_parameters.py (Init), partitioned_param_coordinator.py,
// parameter_offload.py. The first pass over the model is recorded; later ones fetch ahead by the record, as far as
// max_live_parameters and the bucket allow, and keep what they will use again within max_reuse_distance.
// Not here: record_stream(), which holds blocks back until a side stream is through with them.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/parallel/deepspeed.h"

namespace ledger {

class PartitionedParameters {
 public:
  using ModuleId = std::size_t;

  PartitionedParameters(Tape& tape, const ZeroOptions& options) : tape_(tape), options_(options) {}

  // zero.Init: the whole parameter for a moment, then this rank's partition.
  Tensor add(const std::string& name, const Shape& shape, DType dtype, Parameter::Role role, bool trainable,
             Tensor& partition);
  // The same for a weight of packed codes; models that are quantised as they are loaded know no zero.Init.
  Tensor add_packed(const std::string& name, const Shape& shape, DType dtype, Bytes bytes, const FillCodes& fill);
  void partition_loaded();  // Init(module=...), where all of it was loaded whole
  void gather_each_once();  // stage3.py, create_reduce_and_remove_grad_hooks

  ModuleId module_of(const ModuleCall& call);
  ModuleId new_module();                        // one that only calls others
  void start_pass();                            // reset_step
  void fetch(ModuleId module, bool forward);    // fetch_sub_module
  void release(ModuleId module, bool forward);  // release_sub_module
  void release_leftovers();                     // release_backward_leftovers
  void release_all();                           // release_and_reset_all
  void gather_persistent();                     // stage3.py, _post_step
  void read_by(ModuleId module, const Tensor& parameter);

 private:
  using ParamId = std::size_t;
  enum class State : std::uint8_t { absent, in_flight, available };
  enum class Mode : std::uint8_t { idle, record, complete };
  struct Gather {  // AllGatherCoalescedHandle
    std::vector<ParamId> params;
    Tensor flat;
    bool complete = false;
  };
  struct Param {
    Tensor whole, partition;
    std::uint64_t elements = 0, padded = 0;
    State state = State::absent;
    bool trainable = false, persistent = false, external = false, packed = false;
    std::vector<ModuleId> active;    // ds_active_sub_modules
    std::shared_ptr<Gather> flight;  // in the registry of parameters in flight
    std::int64_t recent = 0;         // step for which it was last fetched
  };
  struct Module {
    std::vector<ParamId> params, recomputed;
  };
  struct Use {
    ParamId param;
    std::int64_t step;
  };

  ParamId id_of(const Tensor& parameter) const { return static_cast<ParamId>(parameter.impl()->parameter); }
  void make(Param& param, const std::string& name, DType dtype, Parameter::Role role);
  void keep_on_host(const Param& param);
  void load_whole(Param& param, const std::string& name, DType dtype, Parameter::Role role);
  void gather(const std::vector<ParamId>& params);
  void gather_one(Param& param, const char* scope);
  void gather_together(const std::vector<ParamId>& params);
  void wait_for(Param& param);
  void give_up(Param& param);
  void skip_queue(const Module& module);
  void prefetch();
  std::vector<ParamId> releasable(const Module& module) const;
  void complete_record();

  Tape& tape_;
  ZeroOptions options_;
  std::vector<Param> params_;
  std::vector<Module> modules_;
  std::map<const void*, ModuleId> by_address_;
  Mode mode_ = Mode::idle;
  std::vector<ModuleId> order_;  // as recorded
  std::vector<Use> uses_;        // the parameters of order_
  std::size_t next_use_ = 0;
  std::int64_t step_ = 0, live_ = 0;
  std::vector<ModuleId> in_backward_;  // fetched for backward and not released yet
};

}  // namespace ledger
