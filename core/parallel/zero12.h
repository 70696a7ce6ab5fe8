// zero12.h - ZeRO-1 and ZeRO-2: weights whole and flat on every GPU, optimizer states of one partition on each; with
// stage 2 gradients of that partition, too. Source: DeepSpeed 0.19.6, runtime/zero/stage_1_and_2.py, whose methods'
// names stand beside ours.

#pragma once

#include <optional>
#include <vector>

#include "core/parallel/deepspeed.h"
#include "core/parallel/host_step.h"

namespace ledger {

class Zero12 final : public Zero {
 public:
  Zero12(Tape& tape, const ZeroOptions& options, const MakeStep& make_step)
      : tape_(tape), options_(options), make_step_(make_step) {}

  void wrap(const std::vector<Tensor>& trainable) override;
  void begin_backward(bool boundary) override { boundary_ = boundary; }
  void end_backward() override;
  void step() override;

 private:
  struct Param {
    Tensor tensor;
    std::uint64_t offset = 0, elements = 0;  // in its group's flat buffer
    std::size_t group = 0;
    std::uint64_t skipped = 0;  // its elements before this rank's partition
    bool mine = false;          // reaches into it

    Tensor& gradient() const { return tensor.impl()->grad; }
  };
  struct Group {
    std::vector<Param> params;
    Tensor flat;                  // bit16_groups_flat
    std::uint64_t partition = 0;  // elements
    Tensor master;                // single_partition_of_fp32_groups
    PartitionStep step;
    std::optional<HostStep> host;   // in the place of both when offloaded
    std::vector<Tensor> gradients;  // all_grad_tensors, then averaged_gradients
  };

  void add_group(const std::vector<Tensor>& trainable, const std::vector<std::size_t>& members);
  void flatten(Group& group, std::uint64_t total);
  Tensor own(const Group& group) const;
  void make_master(Group& group);
  void offload(const Group& group);

  void on_gradient(const Param& param);
  void setup_buckets();
  void add_to_bucket(const Param& param);
  void reduce_bucket();
  void average(const Tensor& tensor);
  void all_reduce_pieces(const std::vector<Tensor>& pieces, const std::vector<bool>& mine);
  void keep(const Param& param);
  void copy_to_host(const Param& param);
  void collect(Group& group);
  Tensor norm_on_host() const;
  void update(Group& group, const Tensor& norm);

  Tape& tape_;
  ZeroOptions options_;
  MakeStep make_step_;
  std::vector<Group> groups_;
  bool boundary_ = true, ready_ = false;
  Tensor buffers_[2];  // the bucket's; the second with overlap_comm
  std::size_t buffer_ = 0;
  std::vector<const Param*> members_;  // of the bucket
  std::uint64_t filled_ = 0;
  Tensor gradient_partition_;  // grads_in_partition
  std::uint64_t kept_ = 0;
  Tensor staging_;             // temp_grad_buffer_for_gpu_offload
  std::vector<Tensor> norms_;  // norm_for_param_grads
};

}  // namespace ledger
