// fsdp2.h - torch.distributed.fsdp.fully_shard as one rank lives it: parameters sharded along their first dimension,
// each unit gathered before it runs and its gradients reduced and scattered after.
//
// Source: torch/distributed/fsdp/_fully_shard/{_fsdp_state,_fsdp_param_group,_fsdp_collectives,_fsdp_param}.py (2.14).
// Buffers die where the Python drops its last reference. On CUDA those of all-gathers and the reduced gradients come
// from side streams' pools: core/trace/streams.h.
#pragma once

#include <vector>

#include "core/config/recipe.h"
#include "core/models/parameter_units.h"

namespace ledger {

class Fsdp2 : public ParameterUnits {
 public:
  struct Options {
    std::uint64_t world = 1, rank = 0;
    std::uint64_t tensor_ranks = 1;   // that share each parameter
    DType param_dtype = DType::bf16;  // of the gathered parameters, and so of computation and gradients
    DType reduce_dtype = DType::f32;  // of the reduce-scatter
    bool reshard_after_forward = true;
    bool titan_units = false;      // torchtitan's: embedding alone; norm and head together, not resharded
    bool offload = false;          // CPUOffloadPolicy: shards, their gradients and the optimizer in host memory
    UnitId kept_from = kNoUnit;    // this unit and those after it are not given up after forward, nor is the root
    bool pipelined = false;        // micro-batch after micro-batch, their gradients summed until reduce_all()
    bool float8_gathered = false;  // matrices of layers are gathered as float8 (torchao's fsdp_pre_all_gather)
    // Units of experts, of which others than these ranks have others: one behind each layer, from this one on. They
    // are cut among fewer ranks, and layers name the units to gather next themselves.
    UnitId experts_from = kNoUnit;
    std::uint64_t expert_ranks = 1;  // that have other experts
  };

  Fsdp2(Tape& tape, Options options) : tape_(tape), options_(options) {}

  void open(UnitId unit) override { open_ = &group_of(unit); }
  Tensor parameter(const std::string& name, const Shape& shape, DType dtype, Parameter::Role role, bool trainable,
                   Tensor& trained) override;
  Tensor packed(const std::string& name, Bytes bytes, const FillCodes& fill) override;
  Tensor before_forward(UnitId unit, const Tensor& input) override;
  void after_forward(UnitId unit, const Tensor& output) override;
  void in_pieces(UnitId unit, Pieces pieces) override;

  // Of a pipeline's stage, torch/distributed/pipelining/stage.py, backward_maybe_with_nosync: after the backward pass
  // of a micro-batch, and when all are over. Without _root_post_backward_final_callback nothing gives up what was
  // reduced.
  enum class FinalCallback : std::uint8_t { called, missed };
  void end_micro_batch();
  void reduce_all(FinalCallback callback = FinalCallback::called);

 private:
  enum class State : std::uint8_t { idle, forward, pre_backward, post_backward };
  struct Param {
    Tensor shard;      // this rank's, padded: ceil(rows / world) rows
    Tensor unsharded;  // without memory while resharded
    Tensor summed;     // gradients of pieces, in the dtype in which they are reduced
    std::uint64_t shard_elements = 0;
    DType gathered = DType::bf16;  // as which it is on its way and stays; u8: float8
  };
  struct Group {
    std::vector<Param> params;
    State state = State::idle;
    bool in_backward = false;               // FSDPState's own: recomputation must not gather again
    bool gathered = false, called = false;  // called: of one rank, which gathers nothing
    Pieces pieces = Pieces::over;
    Tensor all_gather;                              // pending output
    std::vector<std::size_t> post_forward_indices;  // into post_forward_order_
  };

  bool is_unit(UnitId unit) const;
  Group& group_of(UnitId unit);
  bool of_experts(const Group& group) const;
  std::uint64_t ranks_of(const Group& group) const;
  RankGroup members_of(const Group& group) const;
  bool reshards_after_forward(const Group& group) const;

  std::vector<Tensor> shards_here(const Group& group);
  Tensor to_host(const Tensor& gradient);
  bool sums(const Group& group) const;
  Bytes shard_bytes(const Group& group, bool cast_only) const;
  enum class Pass : std::uint8_t { forward, backward };
  void gather_named(const Group& group, Pass pass);

  void unshard(Group& group);
  void wait_for_unshard(Group& group);
  void reshard(Group& group);
  void pre_backward(Group& group);
  void post_backward(Group& group);
  void sum_pieces(Group& group);
  void reduce(const Group& group, const std::vector<Param*>& params, std::vector<Tensor>& gradients);
  void keep_gradients(const std::vector<Param*>& params, Tensor reduced);
  void end(Group& group);
  void end_of_backward();

  Tape& tape_;
  Options options_;
  std::vector<Group> groups_ = std::vector<Group>(kFirstLayerUnit);
  Group* open_ = nullptr;
  Tensor all_gather_state_, reduce_scatter_state_;
  std::vector<std::size_t> post_forward_order_;  // groups, in the order in which they ended forward
  bool callback_queued_ = false, reducing_ = false;
};

}  // namespace ledger
