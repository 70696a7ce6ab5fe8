// prediction.h - a model and a recipe, traced and replayed: everything a report is written from.
#pragma once

#include "core/base/problem.h"
#include "core/config/gpu.h"
#include "core/config/model_config.h"
#include "core/config/recipe.h"
#include "core/memory/ledger.h"
#include "core/memory/replay.h"
#include "core/training/step.h"

namespace ledger {

enum class Answer : std::uint8_t { fits, tight, does_not_fit };
const char* answer_name(Answer answer);

// Peak against card. The allocator is replayed against the card's limit, so cached memory that it would give back is
// not held against the recipe, and fragmentation is.
struct Verdict {
  Answer answer = Answer::fits;
  Bytes capacity_bytes = 0;         // what CUDA reports for the card, or the recipe's memory_limit_bytes
  Bytes usable_bytes = 0;           // capacity less the largest context seen: what a careful person plans with
  std::int64_t headroom_bytes = 0;  // usable less peak allocated; negative when short
  bool fragmentation = false;       // does not fit although live blocks would: free memory is in pieces
  Category largest_category = Category::weights;
  bool out_of_memory = false;  // with the smallest context seen, too; phase and tensor below
  std::uint32_t oom_phase = 0;
  StorageId oom_storage = kNoStorage;
};

// What one rank of a pipeline needs at most.
struct StagePeak {
  Bytes tensor_bytes = 0, allocated_bytes = 0;
};

struct Prediction {
  ModelConfig config;
  Recipe recipe;
  const Gpu* gpu = nullptr;
  std::uint64_t params = 0;
  std::uint64_t trainable = 0;
  Trace trace;
  Replay replay;
  Ledger at_peak;  // at the tensor peak
  Verdict verdict;
  std::vector<StagePeak> stages;  // of a pipeline, in order
  std::uint64_t stage = 0;        // of them the one that needs most; trace and replay are its
};

struct PredictOptions {
  std::uint32_t steps = 2;
  bool operands = false;  // keep the trace executable
  bool record_addresses = false;
  bool one_rank = false;  // of trace.rank alone, not of that of a pipeline's stages which needs most
  TraceOptions trace{};   // weights, AdamW constants; steps and operands are taken from above
};

Result<Prediction> predict_run(const ModelConfig& config, const Recipe& recipe, const PredictOptions& options = {});

// A recipe on the scales: peaks and verdict as predict_run has them, without the ledger and the timeline, for those who
// ask about many recipes.
struct Weighed {
  Bytes allocated_bytes = 0;
  Bytes reserved_bytes = 0;
  Answer answer = Answer::fits;
  std::int64_t headroom_bytes = 0;
  std::int64_t spare_bytes = 0;  // headroom less the margin of a tight card: negative for what does not have "fits"
};
Result<Weighed> weigh(const ModelConfig& config, const Recipe& recipe);

// One stage of a Megatron pipeline, or one rank of anything else, and whether it has the verdict "fits": as
// predict_run, for those who ask that alone.
struct RankRun {
  Replay replay;
  bool fits = false;
  Bytes host_bytes = 0;  // that its process keeps in host memory
};
Result<RankRun> run_stage(const ModelConfig& config, const Recipe& recipe, std::uint64_t stage);
Result<RankRun> run_rank(const ModelConfig& config, const Recipe& recipe, std::uint64_t rank);
// The same, but a rank that does not fit is run no further than that shows, and nothing else is known of it. `states`:
// bytes that the first optimizer step is known to leave, which is then seen in the passes before it.
Result<RankRun> run_rank_if_it_fits(const ModelConfig& config, const Recipe& recipe, std::uint64_t rank, Bytes states);

// Allocator options that a recipe asks for.
AllocatorOptions allocator_options(const Recipe& recipe);

}  // namespace ledger
