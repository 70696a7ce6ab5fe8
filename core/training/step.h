// step.h - a model and a recipe, run for some training steps: the trace everything is read from.
#pragma once

#include <cstdint>
#include <optional>

#include "core/base/problem.h"
#include "core/config/model_config.h"
#include "core/config/recipe.h"
#include "core/trace/trace.h"

namespace ledger {

// Of a layer's attention forward and backward, for each rank that shares the sequence: what limits of tracing count.
inline constexpr std::uint64_t kEventsPerRingStep = 40;

struct TraceOptions {
  std::uint32_t steps = 2;
  bool operands = false;             // for executors
  std::optional<DType> weights;      // instead of the recipe's: fp64 in numerics tests
  Bytes cublas_workspace_bytes = 0;  // of the GPU predicted for
  double lora_alpha = 8;             // adapters are scaled by lora_alpha / rank; PEFT's default
  AdamW adamw;
  double max_grad_norm = 1.0;  // 0: gradients are not clipped
  std::uint64_t rank = 0;      // whose trace it is, as mesh_of() numbers them
  bool every_pass = false;     // play all of generation's passes, and all of Megatron's micro-batches, however many
  Bytes limit = kOverflow;     // once more is alive the trace ends, with its phase: who asks wants no more than that
  Bytes states_to_come = 0;    // within it: that the first optimizer step adds at least, known beforehand
  Bytes cudnn_forward_bytes = 0, cudnn_backward_bytes = 0;  // scratch memory of its attention, where known (tape.h)
  bool cpu_statistics = false;  // layer norms keep mean and rstd as the CPU kernel does (tape.h)
};

// The loop of a plain PyTorch script: load; then per step forward, loss.backward(), clip_grad_norm_, optimizer.step(),
// zero_grad(set_to_none=True). Phases: load, stepN.forward, stepN.backward, stepN.optimizer, stepN.zero_grad.
// Problems: unsupported_recipe (what no module covers yet, or no framework can run), too_large_to_trace, overflow.
Result<Trace> trace_step(const ModelConfig& config, const Recipe& recipe, const TraceOptions& options = {});

}  // namespace ledger
