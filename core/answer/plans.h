// plans.h - ways of spreading one training step over many GPUs that fit their memory, the quickest first.
//
// Every valid combination of tensor, pipeline, context, expert and data parallelism, micro-batch, schedule and
// recomputation of the stack `megatron` is put in the order of step_time.h; from the front on each is traced, as a
// report is, until enough of them fit. One that does not fit speaks for all that need more in every respect.
#pragma once

#include <string>
#include <vector>

#include "core/answer/step_time.h"
#include "core/base/problem.h"

namespace ledger {

struct PlanQuestion {
  std::uint64_t gpus = 8;
  std::uint64_t global_batch = 64;  // sequences a step
};

struct Plan {
  Recipe recipe;
  StepTime time;
  Bytes allocated_bytes = 0;  // of the stage that needs most
};

struct Plans {
  std::vector<Plan> plans;   // quickest first
  std::uint64_t valid = 0;   // combinations that the GPUs, the batch and the model allow
  std::uint64_t traced = 0;  // of them run
  bool complete = true;      // false: given up before enough were found
};

// Problems: unsupported_recipe (what megatron cannot build; a card without rates in the catalogue), out_of_range.
Result<Plans> find_plans(const ModelConfig& config, const Recipe& recipe, const PlanQuestion& question);

std::string write_plans(const Plans& plans, const PlanQuestion& question, const Links& links);

}  // namespace ledger
