// ddp.h - torch.nn.parallel.DistributedDataParallel: flat buckets of gradients, all-reduced while backward goes on.
//
// Source: torch/csrc/distributed/c10d/reducer.cpp (2.6), torch/nn/parallel/distributed.py (2.14).
#pragma once

#include <memory>
#include <vector>

#include "core/trace/operators.h"

namespace ledger {

class Ddp {
 public:
  // Buckets for the trainable `parameters` (in registration order), kept as long as this. Rebuilding them after the
  // first backward pass, in the order in which gradients come, changes neither their number nor their size by much and
  // is not traced. With `bucket_view` gradients live in the buckets (gradient_as_bucket_view); else beside them.
  Ddp(Tape& tape, const std::vector<Tensor>& parameters, bool bucket_view);

 private:
  void add_bucket(Tape& tape, const std::vector<const Tensor*>& members, bool bucket_view);

  struct Member {
    Tensor parameter, view;  // of its bucket
  };
  struct Bucket {
    Tensor memory;
    std::vector<Member> members;
    std::size_t arrived = 0;  // gradients of this backward pass
  };

  void on_gradient(Bucket& bucket, const Member& member, Tensor& gradient, bool bucket_view);

  std::vector<std::unique_ptr<Bucket>> buckets_;
};

}  // namespace ledger
