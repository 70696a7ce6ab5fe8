// megatron_buffers.h - what Megatron-Core's DDP and its mixed-precision or distributed optimizer hold for the
// parameters of a stage, in buffers of their own for experts.
//
// Source: Megatron-LM
// megatron/core/distributed/{distributed_data_parallel,param_and_grad_buffer,finalize_model_grads}.py,
// optimizer/{optimizer,distrib_optimizer,clip_grads}.py.
#pragma once

#include <vector>

#include "core/models/megatron.h"
#include "core/training/megatron_step.h"

namespace ledger {

class MegatronBuffers : public MainGradients {
 public:
  MegatronBuffers(Tape& tape, const ModelConfig& config, const Recipe& recipe, const MegatronRun& run);

  void add(const Tensor& parameter, PartsOf parts) override;
  Tensor of(const Tensor& parameter) const override;
  void make();  // once every parameter is added
  void before_backward();

  // finalize_model_grads and the optimizer's step; `shared_embedding` where both ends of a pipeline hold one, here for
  // the first time or for the second.
  struct SharedEmbedding {
    Tensor parameter;
    bool again = false;
  };
  void step(const SharedEmbedding& embedding);
  void zero();

 private:
  struct Member {
    Tensor parameter;
    std::size_t buffer = 0;
    std::uint64_t offset = 0;
    PartsOf parts = PartsOf::none;
  };
  struct Buffer {
    bool experts = false;
    std::uint64_t ranks = 1, place = 0;  // of those with the same parameters and other tokens
    std::uint64_t elements = 0;
    Tensor parameters, gradients, gradients_copy, main, exp_avg, exp_avg_sq;
  };

  Tensor window(const Tensor& buffer, const Member& member) const;
  const Member& member_of(const Tensor& parameter) const;
  bool shares(const Buffer& b) const { return recipe_.zero == 1 && b.ranks != 1; }
  std::uint64_t own_count(const Buffer& b) const;
  std::uint64_t own_first(const Buffer& b) const;
  Shape share(const Buffer& b) const { return {{own_count(b), Sym::none}}; }
  Shape whole(const Buffer& b) const;
  Tensor own_part(const Buffer& b, const Tensor& buffer) const;
  Tensor own_window(const Tensor& own, const Member& member) const;
  void make_gradients(std::size_t number);
  void make_main(std::size_t number);
  void move_parameters(std::size_t number);
  void reduce(const SharedEmbedding& embedding);
  void reduce_over_data(const Buffer& b) const;
  void sum_over_tensor_ranks();
  bool counts(const Member& member, const SharedEmbedding& embedding) const;
  Tensor norm_of(std::size_t number, const Tensor& gradients, const SharedEmbedding& embedding,
                 std::vector<Tensor>& kept) const;
  void clip(const std::vector<Tensor>& gradients, const SharedEmbedding& embedding) const;
  void update(std::size_t number, const Tensor& gradients);
  void update_parameters(std::size_t number);

  Tape& tape_;
  const Recipe& recipe_;
  const MegatronRun& run_;
  Mesh mesh_;
  std::vector<Buffer> buffers_;
  std::vector<Member> members_;  // by the parameters' numbers
  // get_dummy_wgrad: what a product hands to autograd that has added its weight's gradient itself, one of each shape.
  struct Dummy {
    Dim rows, columns;
    Tensor tensor;
  };
  mutable std::vector<Dummy> dummies_;
  std::int64_t steps_ = 0;
};

}  // namespace ledger
