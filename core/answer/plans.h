// plans.h - ways of spreading one training step over many GPUs that fit their memory, the quickest first.
//
// Each stack that is searched (the table in plans.cc) lists every valid combination of what it can choose, in the order
// of the time of a step; from the front on each is traced, as a report is, until enough of them fit. One that does not
// fit speaks for all that need more in every respect.
// `megatron`: tensor, pipeline, context, expert and data parallelism, micro-batch, schedule and recomputation. `hf`:
// DDP, FSDP and DeepSpeed's ZeRO as accelerate drives them, micro-batch against accumulation, checkpointing; and behind
// all of these the same with the optimizer, or parameters as well, in host memory.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "core/answer/data_parallel_time.h"
#include "core/answer/step_time.h"
#include "core/base/problem.h"

namespace ledger {

struct PlanQuestion {
  std::uint64_t gpus = 8;
  std::uint64_t global_batch = 64;  // sequences a step
  std::optional<Stack> stack = {};  // nullopt: the recipe's own, or `hf` where that is not searched
  std::size_t wanted = 8;           // plans that are shown
  enum class Keep : std::uint8_t { gpu_first, on_gpu, on_host };
  Keep keep = Keep::gpu_first;  // plans without offloading and then those with it; or only either
};

struct Plan {
  Recipe recipe;
  StepTime time;
  Bytes allocated_bytes = 0;  // of the stage that needs most
  Bytes host_bytes = 0;       // of its process, where something is offloaded: the time is then without the host's part
};

// Combinations that are left out, by the reason that the first of them was refused for.
struct LeftOut {
  Problem problem;
  std::uint64_t combinations = 0;
};

struct Plans {
  Stack stack = Stack::megatron;
  Bounds bounds{};           // published runs over the time computed
  std::vector<Plan> plans;   // quickest first
  std::uint64_t valid = 0;   // combinations that the GPUs, the batch and the model allow
  std::uint64_t traced = 0;  // of them run
  bool complete = true;      // false: given up before enough were found
  std::vector<LeftOut> left_out;
};

// Problems: unsupported_recipe (what megatron cannot build; a card without rates in the catalogue), out_of_range,
// not_one_of (a stack that is not searched).
Result<Plans> find_plans(const ModelConfig& config, const Recipe& recipe, const PlanQuestion& question);

// On how few cards a method's step fits, and the quickest plan on so many.
struct CardsOf {
  Method method = Method::full;
  std::uint64_t gpus = 0;  // 0: on none that were tried
  std::optional<Plan> plan;
  std::optional<Problem> problem;  // why nothing could be tried
  std::optional<Plan> offloaded;   // on fewer cards, with states or parameters in host memory
};

struct Cards {
  std::uint64_t most = 0;  // that were tried
  std::vector<CardsOf> methods;
};

// Of full fine-tuning, LoRA and QLoRA under the stack `hf`. Cards: 1, 2, 4 and so on, as long as each has a sequence.
Result<Cards> find_cards(const ModelConfig& config, const Recipe& recipe, const PlanQuestion& question);

std::string write_plans(const Plans& plans, const PlanQuestion& question, const Links& links);
std::string write_cards(const Cards& cards, const PlanQuestion& question, const Links& links);

// What plans.cc asks of the stacks' own searches, whose card has link rates.
Result<Plans> find_megatron_plans(const ModelConfig& config, const Recipe& recipe, const PlanQuestion& question);
Result<Plans> find_data_parallel_plans(const ModelConfig& config, const Recipe& recipe, const PlanQuestion& question);
// What searches with one recipe and batch have in common, on however many GPUs: each adds what it finds out.
struct SharedSearch {
  std::vector<DataParallelModel> operators;  // of one GPU
  struct Leanest {                           // what an engine takes with the smallest micro-batch
    std::uint64_t gpus;
    std::ptrdiff_t engine;
    Checkpointing checkpointing;
    Bytes allocated_bytes, host_bytes;
  };
  std::vector<Leanest> leanest;
};
Result<Plans> find_data_parallel_plans(const ModelConfig& config, const Recipe& recipe, const PlanQuestion& question,
                                       SharedSearch& shared);
// Whether it would find one: from the leanest plan of each kind, without looking for the quickest.
Result<bool> has_data_parallel_plans(const ModelConfig& config, const Recipe& recipe, const PlanQuestion& question,
                                     SharedSearch& shared);
// The recipe with another method, as it is usually run.
Recipe with_method(const Recipe& recipe, Method method);

// Slower plans are worth telling when they need less than what was found so far, by more than a hundredth.
inline bool is_news(const Plans& found, Bytes plan) {
  if (found.plans.empty()) return true;
  const Bytes quicker = found.plans.back().allocated_bytes;
  return plan < quicker - quicker / 100;
}

}  // namespace ledger
