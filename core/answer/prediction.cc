#include "core/answer/prediction.h"

#include <algorithm>

#include "core/inference/generate.h"
#include "core/training/course.h"
#include "core/training/megatron_step.h"

namespace ledger {
namespace {

// A card within 2 % of full is "tight": run-to-run differences in context and library memory are of that order.
constexpr Bytes kTightDivisor = 50;

Bytes minus(Bytes a, Bytes b) {
  return a > b ? a - b : 0;
}

Replay replay_within(const Prediction& p, Bytes limit) {
  ReplayOptions options{.allocator = allocator_options(p.recipe), .record_addresses = false, .record_samples = false};
  options.allocator.limit = limit;
  return replay(p.trace, options);
}

Category largest_category(const Ledger& ledger) {
  const auto largest = std::max_element(ledger.categories.begin(), ledger.categories.end());
  return static_cast<Category>(largest - ledger.categories.begin());
}

Verdict verdict_of(const Prediction& p) {
  Verdict v;
  v.capacity_bytes = p.recipe.memory_limit_bytes != 0 ? p.recipe.memory_limit_bytes : p.gpu->usable_bytes;
  v.usable_bytes = minus(v.capacity_bytes, p.gpu->context_high_bytes);
  v.headroom_bytes =
      static_cast<std::int64_t>(v.usable_bytes) - static_cast<std::int64_t>(p.replay.peak_allocated_bytes);
  v.largest_category = largest_category(p.at_peak);
  const Bytes margin = v.capacity_bytes / kTightDivisor;
  if (plus(p.replay.peak_reserved_bytes, margin) <= v.usable_bytes) return v;
  if (!replay_within(p, v.usable_bytes).out_of_memory) {
    v.answer = v.headroom_bytes >= static_cast<std::int64_t>(margin) ? Answer::fits : Answer::tight;
    return v;
  }
  const Bytes most_usable = minus(v.capacity_bytes, p.gpu->context_low_bytes);
  const Replay widest = replay_within(p, most_usable);
  v.answer = widest.out_of_memory ? Answer::does_not_fit : Answer::tight;
  if (widest.out_of_memory) {
    v.out_of_memory = true;
    v.oom_phase = phase_at(p.trace, widest.oom_event);
    v.oom_storage = widest.oom_storage;
    v.fragmentation = p.replay.peak_allocated_bytes <= most_usable;
  }
  return v;
}

std::uint64_t trainable_elements(const Trace& trace) {
  std::uint64_t sum = 0;
  for (const Parameter& parameter : trace.parameters) {
    if (!parameter.trainable) continue;
    sum = plus(sum, parameter.elements != 0 ? parameter.elements : trace.storages[parameter.storage].shape.numel());
  }
  return sum;
}

// The stage that needs most, first of equals.
Result<Trace> trace_of_pipeline(Prediction& p, const PredictOptions& options) {
  const Bytes cublas = cublas_workspace_bytes(*p.gpu);
  const MegatronRun run_options{
      .steps = options.steps,
      .cublas_workspace_bytes = cublas,
      .te_workspace_bytes = cublas >= 32 * kMiB ? 32 * kMiB : 4 * kMiB,  // get_cublas_workspace_size_bytes
  };
  Trace most;
  for (std::uint64_t stage = 0; stage < p.recipe.pp; ++stage) {
    Result<Trace> trace = trace_megatron(p.config, p.recipe, stage, run_options);
    if (!trace.ok()) return trace.problem();
    const Replay run = replay(trace.value(), {.allocator = allocator_options(p.recipe), .record_samples = false});
    p.stages.push_back({run.peak_tensor_bytes, run.peak_allocated_bytes});
    if (stage != 0 && run.peak_allocated_bytes <= p.stages[static_cast<std::size_t>(p.stage)].allocated_bytes) continue;
    p.stage = stage;
    most = std::move(trace.value());
  }
  return most;
}

Result<Trace> trace_of(Prediction& p, const PredictOptions& options) {
  if (p.recipe.stack == Stack::megatron) return trace_of_pipeline(p, options);
  if (p.recipe.stack == Stack::course) return trace_course(p.config, p.recipe, options.steps);
  TraceOptions trace_options = options.trace;
  trace_options.steps = options.steps;
  trace_options.operands = options.operands;
  trace_options.cublas_workspace_bytes = cublas_workspace_bytes(*p.gpu);
  return p.recipe.task == Task::generate ? trace_generation(p.config, p.recipe, trace_options)
                                         : trace_step(p.config, p.recipe, trace_options);
}

}  // namespace

const char* answer_name(Answer answer) {
  constexpr const char* kNames[] = {"fits", "tight", "does_not_fit"};
  return kNames[static_cast<std::size_t>(answer)];
}

AllocatorOptions allocator_options(const Recipe& recipe) {
  return {.expandable_segments = recipe.allocator == AllocatorKind::torch_expandable, .limit = kOverflow};
}

Result<Prediction> predict_run(const ModelConfig& config, const Recipe& recipe, const PredictOptions& options) {
  Prediction p;
  p.config = config;
  p.recipe = recipe;
  p.gpu = find_gpu(recipe.gpu);
  p.params = p.trainable = parameter_count(config);  // adapters are not counted in params
  if (is_overflow(p.params)) return Problem{ProblemCode::overflow, "hidden_size", "", "", ""};
  Result<Trace> trace = trace_of(p, options);
  if (!trace.ok()) return trace.problem();
  p.trace = std::move(trace.value());
  if (recipe.stack == Stack::megatron) {
    p.trainable = p.params;  // the trace has one rank's part
  } else if (recipe.stack != Stack::course) {
    p.trainable = trainable_elements(p.trace);
  } else if (recipe.task == Task::generate) {
    p.trainable = 0;
  } else if (recipe.method != Method::full) {
    p.trainable = course_adapter_parameters(config, recipe);
  }
  p.replay = replay(p.trace, {.allocator = allocator_options(recipe), .record_addresses = options.record_addresses});
  if (is_overflow(p.replay.peak_reserved_bytes)) return Problem{ProblemCode::overflow, "batch, seq", "", "", ""};
  p.at_peak = ledger_at(p.trace, p.replay.peak_event);
  p.verdict = verdict_of(p);
  return p;
}

}  // namespace ledger
