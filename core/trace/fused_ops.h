// fused_ops.h - operators of the stack native: several of PyTorch's in one, that save little and work in place.
//
// Where memory changes hands, an argument's value is gone: its memory becomes the result's. Gradients are written over
// what they are made of wherever nobody else holds that.
#pragma once

#include "core/trace/tape.h"

namespace ledger {

struct Normed {
  Tensor y, sum;
};

// sum = residual + x in x's memory, y = RMSNorm(sum) * weight. x may be empty: then the sum is the residual itself.
// Saved: the sum, rstd, weight. Backward adds the two gradients of the sum as it writes them.
Normed add_rms_norm(const Tensor& residual, const Tensor& x, const Tensor& weight, double eps);

// RMSNorm in one kernel, for a node whose rule is the caller's: x [.., h] * rstd * (offset + weight) in x's dtype.
// Saved: x, weight, rstd.
Tensor rms_norm_by(Node* node, const Tensor& x, const Tensor& weight, double eps, std::int64_t offset = 0);

// Rotary embedding of x [b, s, n, d], in x's memory; no tables, cosine and sine are computed where they are used.
Tensor rope_inplace(const Tensor& x, const Tensor& inverse_frequencies);

// silu(gate) * up. Saved: both.
Tensor swiglu(const Tensor& gate, const Tensor& up);

// Mean over the targets [T] that count; the logits' memory [T, V] holds their gradient from then on.
Tensor cross_entropy_inplace(const Tensor& logits, const Tensor& targets);

// Causal attention by the probe's own kernels, which need no memory beside their operands. Saved: q, k, v, the result
// and its logsumexp. Layouts as flash_attention's.
Tensor own_attention(const Tensor& q, const Tensor& k, const Tensor& v);

}  // namespace ledger
