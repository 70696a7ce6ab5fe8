// titan_pipeline.h - the stacks `torchtitan`: training steps of one rank of a pipeline, as torch.distributed.pipelining
// plays its stages.
//
// Sources: torch/distributed/pipelining/{stage,schedules,_backward}.py, December 2024 to February 2026 (2.6 to 2.11);
// torchtitan train.py, parallelisms/pipeline_llama.py and pipelining_utils.py at 9dec370, distributed/pipeline.py in
// v0.1.0, distributed/pipeline_parallel.py in v0.2.2.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/base/problem.h"
#include "core/training/step.h"

namespace ledger {

class Tape;

// One pass of a micro-batch through one of a rank's stages.
struct PipelineTurn {
  bool backward = false;
  std::size_t stage = 0;  // of this rank's
  std::size_t micro_batch = 0;
  bool operator==(const PipelineTurn&) const = default;
};

// What rank `rank` of `ranks` runs, in order: Schedule1F1B with one stage a rank, ScheduleInterleaved1F1B with more.
// Empty: the schedule cannot divide `micro_batches` into its rounds.
std::vector<PipelineTurn> pipeline_turns(std::uint64_t rank, std::uint64_t ranks, std::uint64_t stages_of_rank,
                                         std::uint64_t micro_batches);

// Ends the tape's trace. Phases as of stack megatron: step1.2.forward is the second forward pass of the rank.
Trace trace_titan_pipeline(Tape& tape, const ModelConfig& config, const Recipe& recipe, const TraceOptions& options);

}  // namespace ledger
