// megatron_step.h - the stack `megatron`: training steps of one pipeline stage under the 1F1B schedule, with
// Megatron-Core's DDP buffers and mixed-precision or distributed optimizer.
//
// Source: Megatron-LM megatron/core/pipeline_parallel/schedules.py, distributed/param_and_grad_buffer.py,
// optimizer/{optimizer,distrib_optimizer}.py.
#pragma once

#include <vector>

#include "core/base/problem.h"
#include "core/config/model_config.h"
#include "core/config/recipe.h"
#include "core/trace/trace.h"

namespace ledger {

struct MegatronRun {
  std::uint32_t steps = 2;
  Bytes cublas_workspace_bytes = 0, te_workspace_bytes = 0;
  bool gradient_accumulation_fusion = true;  // Megatron's default
  bool rope_fusion = true;                   // so is this
  bool keeps_dummy_gradients = true;         // Transformer Engine since 2.3; before, a new one died at once
  bool deterministic = false;
  std::uint64_t rank = 0;          // of those that mesh_of() numbers; its stage is given apart
  bool operands = false;           // for executors
  bool every_micro_batch = false;  // instead of as many as make the peak
  DType weights = DType::bf16;
  AdamW adamw = {};
  double max_grad_norm = 1.0;  // 0: gradients are not clipped
};

struct TraceOptions;
MegatronRun megatron_run(const TraceOptions& options);

// Problems: unsupported_recipe, overflow.
Result<Trace> trace_megatron(const ModelConfig& config, const Recipe& recipe, std::uint64_t stage,
                             const MegatronRun& run = {});

// What the stack's own modules do not know, or are not computed with yet.
std::optional<Problem> unsupported_in_megatron(const ModelConfig& config, const Recipe& recipe);

// Micro-batches whose activations `stage` of `stages` holds at most.
std::uint64_t micro_batches_in_flight(std::uint64_t stage, std::uint64_t stages, std::uint64_t micro_batches);

}  // namespace ledger
