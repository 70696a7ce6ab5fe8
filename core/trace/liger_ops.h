// liger_ops.h - Liger-Kernel's operators: each saves what its backward reads and nothing else, and writes gradients
// over what they are made of, whoever else holds that.
//
// Source: Liger-Kernel 0.8.2, src/liger_kernel/ops/{rms_norm,swiglu,geglu,rope}.py.
#pragma once

#include "core/trace/tape.h"

namespace ledger::liger {

struct RmsNorm {
  double eps = 1e-6;
  bool in_place = true;  // the gradient of x takes the place of the result's; else it is made of zeros
  bool gemma = false;    // casting_mode "gemma", offset 1: times 1 + weight
};

// LigerRMSNormFunction: x [.., h] * rstd * weight in x's dtype. Saved: x, weight, rstd (fp32 [..]). Not here: the
// partial sums of the weight's gradient, an fp32 row for each multiprocessor.
Tensor rms_norm(const Tensor& x, const Tensor& weight, const RmsNorm& norm);

// LigerSiLUMulFunction: silu(gate) * up; LigerGELUMulFunction: GELU's tanh form in its place. Saved: both, whose
// gradients take their places. Copies where they are parts of one product.
Tensor silu_mul(const Tensor& gate, const Tensor& up);
Tensor gelu_mul(const Tensor& gate, const Tensor& up);

// LigerRopeFunction for one of queries and keys: x [b, n, s, d], turned in its own memory if that lies as [b, s, n, d],
// else in a copy that does. Saved: cos and sin. `inverse_frequencies`, fp32 [d/2]: what the tables were made of, and
// what executors turn by.
Tensor rope(const Tensor& x, const Tensor& cos, const Tensor& sin, const Tensor& inverse_frequencies);

}  // namespace ledger::liger
