// dtensor.h - what torch.distributed.tensor does between the layouts of torchtitan's tensor parallelism, as one rank
// lives it: a sequence cut among ranks, or whole; rows of a table, or classes, of which each rank has its part.
//
// Source: torch/distributed/_functional_collectives.py (all_gather_tensor, reduce_scatter_tensor: collectives join and
// cut the first dimension alone, others go through chunk and cat), torch/distributed/tensor/placement_types.py,
// torch/distributed/tensor/_ops/_embedding_ops.py, torch/distributed/tensor/parallel/loss.py.
#pragma once

#include "core/models/own_rows.h"

namespace ledger::dtensor {

// Shard(1) to Replicate: [b, s/tp, h] of every rank to [b, s, h]. The gradient, a partial sum, is scattered.
Tensor gather_sequence(const Tensor& x, Dim whole);

// Partial to Shard(1): the sum over ranks of [b, s, h], of which each keeps its [b, s/tp, h]. The gradient is gathered.
Tensor scatter_sums(const Tensor& x, Dim part);

// Rows of a table [V, h] of which this rank has `weight` [V/tp, h]; the sum over ranks is cut to [b, s/tp, h]. The
// gradient's strategies know no rows that are cut: it is made for the whole table, of which this rank keeps its part.
Tensor embedding(const Tensor& weight, const Tensor& ids, TensorSeat seat, Dim part);

// Cross-entropy of fp32 logits [T, V/tp] in this rank's part of the vocabulary: the mean by loss_parallel(), or the sum
// by torchtitan's own function (components/loss.py, _LossParallelCrossEntropy), which takes the same steps.
Tensor cross_entropy(const Tensor& logits, const Tensor& labels, TensorSeat seat, Reduction reduction);

// Partial to Replicate.
Tensor sum_of_ranks(const Tensor& x);

}  // namespace ledger::dtensor
