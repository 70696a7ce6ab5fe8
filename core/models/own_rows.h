// own_rows.h - rows of a table, or classes, that are cut among ranks: each looks up its own.
#pragma once

#include "core/trace/operators.h"

namespace ledger {

// Which of `ranks` this is.
struct TensorSeat {
  std::uint64_t rank = 0, ranks = 1;
};

// Of ids (one dimension) in a range of which each rank has `part`: those that are other ranks', and where the others
// stand in this rank's part; 0 for others'. Source: torch/distributed/tensor/_ops/_embedding_ops.py, _MaskPartial, and
// the same in Megatron-LM core/tensor_parallel/{layers,cross_entropy}.py.
struct OwnRows {
  Tensor others, places;
};
OwnRows own_rows(const Tensor& ids, TensorSeat seat, std::uint64_t part);

// x, dense, as one row, and as one column.
Tensor as_row(const Tensor& x);
Tensor as_column(const Tensor& x);

}  // namespace ledger
