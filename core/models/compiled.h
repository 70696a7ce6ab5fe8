// compiled.h - what torch.compile makes of some modules: fused kernels, and no more saved than their backward reads.
// Sizes only; no executor computes them.
//
// Source: torch/_functorch/partitioners.py (solve_min_cut: no product is computed again, nor what backward would have
// to write to memory first, ban_recompute_materialized_backward: the operands of products and of attention);
// torch/_inductor (scheduler.py, fusion; ir.py, buffers that are reused in place).
#pragma once

#include "core/trace/operators.h"

namespace ledger::compiled {

// F.silu(gate) * up in one kernel. Saves both; of the two gradients one takes the memory of that of the result.
Tensor swiglu(const Tensor& gate, const Tensor& up);

// F.cross_entropy(logits.float(), labels): reads the logits in their own dtype and saves them with the largest of each
// row and the sum of its exponentials; backward writes the gradient in the same dtype. logits [T, V].
Tensor cross_entropy(const Tensor& logits, const Tensor& labels);

}  // namespace ledger::compiled
