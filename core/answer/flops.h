// flops.h - what a step computes: floating point operations of its matrix products and attention, read off the trace.
//
// A product [M,K] x [K,N] counts 2 M N K, attention its two products over all s x s scores: 4 b nh s s d forward and
// twice that backward, as Kaplan et al. (arXiv:2001.08361, section 2.1) and Narayanan et al. (arXiv:2104.04473,
// appendix) count. Left out: element-wise operators, reductions, the embedding, LLM.int8's products and the optimizer;
// that causal kernels skip half of the scores; and what flash attention's backward computes again inside its kernel.
#pragma once

#include <cstdint>
#include <optional>

#include "core/trace/trace.h"

namespace ledger {

struct Flops {
  std::uint64_t forward = 0;
  std::uint64_t recompute = 0;  // forward operators that run again within backward (checkpointing)
  std::uint64_t backward = 0;

  std::uint64_t total() const { return plus(plus(forward, recompute), backward); }
};

struct StepFlops {
  Flops layers;  // of the decoder layers, or of a plain stack's
  Flops rest;    // output head, rotary tables
};

// Of the first step. nullopt when the trace has no operands.
std::optional<StepFlops> step_flops(const Trace& trace);

// Of one operator.
std::uint64_t flops_of_run(const Trace& trace, const Run& run);

}  // namespace ledger
