#include "core/answer/prediction.h"

#include <algorithm>

#include "core/inference/generate.h"
#include "core/parallel/mesh_of.h"
#include "core/training/course.h"
#include "core/training/megatron_step.h"

namespace ledger {
namespace {

// A card within 2 % of full is "tight": run-to-run differences in context and library memory are of that order.
constexpr Bytes kTightDivisor = 50;

Bytes minus(Bytes a, Bytes b) {
  return a > b ? a - b : 0;
}

Replay replay_within(const Trace& trace, const Recipe& recipe, Bytes limit) {
  ReplayOptions options{.allocator = allocator_options(recipe), .record_addresses = false, .record_samples = false};
  options.allocator.limit = limit;
  return replay(trace, options);
}

// What a card offers: with the largest context seen, and with the smallest.
struct Room {
  Bytes capacity, usable, most_usable, margin;
};

Room room_of(const Recipe& recipe, const Gpu& gpu) {
  const Bytes capacity = recipe.memory_limit_bytes != 0 ? recipe.memory_limit_bytes : gpu.usable_bytes;
  return {capacity, minus(capacity, gpu.context_high_bytes), minus(capacity, gpu.context_low_bytes),
          capacity / kTightDivisor};
}

Category largest_category(const Ledger& ledger) {
  const auto largest = std::max_element(ledger.categories.begin(), ledger.categories.end());
  return static_cast<Category>(largest - ledger.categories.begin());
}

std::int64_t headroom_of(const Room& room, const Replay& run) {
  return static_cast<std::int64_t>(room.usable) - static_cast<std::int64_t>(run.peak_allocated_bytes);
}

// Where live tensors alone are more than the limit, no order of blocks can help.
bool runs_within(const Trace& trace, const Replay& run, const Recipe& recipe, Bytes limit) {
  return run.peak_tensor_bytes <= limit && !replay_within(trace, recipe, limit).out_of_memory;
}

// Replays what is in doubt only: most recipes are far from the card's limit on one side or the other.
Answer answer_of(const Trace& trace, const Replay& run, const Recipe& recipe, const Room& room) {
  if (plus(run.peak_reserved_bytes, room.margin) <= room.usable) return Answer::fits;
  if (runs_within(trace, run, recipe, room.usable))
    return headroom_of(room, run) >= static_cast<std::int64_t>(room.margin) ? Answer::fits : Answer::tight;
  return runs_within(trace, run, recipe, room.most_usable) ? Answer::tight : Answer::does_not_fit;
}

Verdict verdict_of(const Prediction& p) {
  const Room room = room_of(p.recipe, *p.gpu);
  Verdict v;
  v.answer = answer_of(p.trace, p.replay, p.recipe, room);
  v.capacity_bytes = room.capacity;
  v.usable_bytes = room.usable;
  v.headroom_bytes = headroom_of(room, p.replay);
  v.largest_category = largest_category(p.at_peak);
  if (v.answer == Answer::does_not_fit) {
    const Replay widest = replay_within(p.trace, p.recipe, room.most_usable);
    v.out_of_memory = true;
    v.oom_phase = phase_at(p.trace, widest.oom_event);
    v.oom_storage = widest.oom_storage;
    v.fragmentation = p.replay.peak_allocated_bytes <= room.most_usable;
  }
  return v;
}

// verdict_of's "fits", without replaying what must fail.
bool fits(const Trace& trace, const Replay& run, const Recipe& recipe, const Gpu& gpu) {
  const Room room = room_of(recipe, gpu);
  if (plus(run.peak_reserved_bytes, room.margin) <= room.usable) return true;
  if (plus(run.peak_allocated_bytes, room.margin) > room.usable) return false;
  return !replay_within(trace, recipe, room.usable).out_of_memory;
}

MegatronRun megatron_run(const Recipe& recipe, std::uint32_t steps) {
  TraceOptions options;
  options.steps = steps;
  options.rank = rank_with_most(recipe);
  options.cublas_workspace_bytes = cublas_workspace_bytes(*find_gpu(recipe.gpu));
  return megatron_run(options);
}

Replay replay_peaks(const Trace& trace, const Recipe& recipe) {
  return replay(trace, {.allocator = allocator_options(recipe), .record_samples = false});
}

Bytes host_bytes(const Trace& trace) {
  Bytes sum = 0;
  for (const HostLine& line : host_ledger(trace))
    sum = plus(sum, line.bytes);
  return sum;
}

Result<RankRun> run_trace(const Result<Trace>& trace, const Recipe& recipe) {
  if (!trace.ok()) return trace.problem();
  if (trace.value().over_limit) return RankRun{};
  RankRun run{replay_peaks(trace.value(), recipe), false, host_bytes(trace.value())};
  run.fits = fits(trace.value(), run.replay, recipe, *find_gpu(recipe.gpu));
  return run;
}

Result<RankRun> run_rank(const ModelConfig& config, const Recipe& recipe, std::uint64_t rank, TraceOptions options) {
  options.rank = rank;
  options.cublas_workspace_bytes = cublas_workspace_bytes(*find_gpu(recipe.gpu));
  return run_trace(trace_step(config, recipe, options), recipe);
}

std::uint64_t trainable_elements(const Trace& trace) {
  std::uint64_t sum = 0;
  for (const Parameter& parameter : trace.parameters) {
    if (!parameter.trainable) continue;
    sum = plus(sum, parameter.elements != 0 ? parameter.elements : trace.storages[parameter.storage].shape.numel());
  }
  return sum;
}

// Whether ranks hold different layers.
bool has_stages(const Recipe& recipe) {
  return recipe.stack == Stack::megatron || (recipe.pp != 1 && recipe.stack != Stack::course);
}

Result<Trace> trace_stage(const Prediction& p, std::uint64_t stage, const PredictOptions& options) {
  if (p.recipe.stack == Stack::megatron)
    return trace_megatron(p.config, p.recipe, stage, megatron_run(p.recipe, options.steps));
  TraceOptions trace_options = options.trace;
  trace_options.steps = options.steps;
  trace_options.rank = times(stage, mesh_of(p.recipe).stage_ranks());
  trace_options.operands = options.operands;
  trace_options.cublas_workspace_bytes = cublas_workspace_bytes(*p.gpu);
  return trace_step(p.config, p.recipe, trace_options);
}

// The stage that needs most, first of equals.
Result<Trace> trace_of_pipeline(Prediction& p, const PredictOptions& options) {
  Trace most;
  for (std::uint64_t stage = 0; stage < p.recipe.pp; ++stage) {
    Result<Trace> trace = trace_stage(p, stage, options);
    if (!trace.ok()) return trace.problem();
    const Replay run = replay_peaks(trace.value(), p.recipe);
    p.stages.push_back({run.peak_tensor_bytes, run.peak_allocated_bytes});
    if (stage != 0 && run.peak_allocated_bytes <= p.stages[static_cast<std::size_t>(p.stage)].allocated_bytes) continue;
    p.stage = stage;
    most = std::move(trace.value());
  }
  return most;
}

Result<Trace> trace_of(Prediction& p, const PredictOptions& options) {
  const bool stages = has_stages(p.recipe);
  if (stages && !options.one_rank) return trace_of_pipeline(p, options);
  if (stages) p.stage = mesh_of(p.recipe).place(options.trace.rank, Axis::pipeline);
  if (p.recipe.stack == Stack::course) return trace_course(p.config, p.recipe, options.steps);
  TraceOptions trace_options = options.trace;
  trace_options.steps = options.steps;
  if (!options.one_rank) trace_options.rank = rank_with_most(p.recipe);
  trace_options.operands = options.operands;
  trace_options.cublas_workspace_bytes = cublas_workspace_bytes(*p.gpu);
  return p.recipe.task == Task::generate ? trace_generation(p.config, p.recipe, trace_options)
                                         : trace_step(p.config, p.recipe, trace_options);
}

Problem too_many_bytes() {
  return {ProblemCode::overflow, "batch, seq", "", "", ""};
}

// What is weighed and what is reported: the model, the recipe and the trace, nothing replayed yet.
Result<Prediction> traced_run(const ModelConfig& config, const Recipe& recipe, const PredictOptions& options) {
  Prediction p;
  p.config = config;
  p.recipe = recipe;
  p.gpu = find_gpu(recipe.gpu);
  p.params = p.trainable = parameter_count(config);  // adapters are not counted in params
  if (is_overflow(p.params)) return Problem{ProblemCode::overflow, "hidden_size", "", "", ""};
  Result<Trace> trace = trace_of(p, options);
  if (!trace.ok()) return trace.problem();
  p.trace = std::move(trace.value());
  return p;
}

}  // namespace

const char* answer_name(Answer answer) {
  constexpr const char* kNames[] = {"fits", "tight", "does_not_fit"};
  return kNames[static_cast<std::size_t>(answer)];
}

AllocatorOptions allocator_options(const Recipe& recipe) {
  return {.expandable_segments = recipe.allocator == AllocatorKind::torch_expandable, .limit = kOverflow};
}

Result<RankRun> run_stage(const ModelConfig& config, const Recipe& recipe, std::uint64_t stage) {
  return run_trace(trace_megatron(config, recipe, stage, megatron_run(recipe, PredictOptions{}.steps)), recipe);
}

Result<RankRun> run_rank(const ModelConfig& config, const Recipe& recipe, std::uint64_t rank) {
  return run_rank(config, recipe, rank, TraceOptions{});
}

Result<RankRun> run_rank_if_it_fits(const ModelConfig& config, const Recipe& recipe, std::uint64_t rank, Bytes states) {
  const Room room = room_of(recipe, *find_gpu(recipe.gpu));
  TraceOptions options;
  options.limit = minus(room.usable, room.margin);  // as fits() has it
  options.states_to_come = states;
  return run_rank(config, recipe, rank, options);
}

Result<Weighed> weigh(const ModelConfig& config, const Recipe& recipe) {
  Result<Prediction> traced = traced_run(config, recipe, {});
  if (!traced.ok()) return traced.problem();
  const Prediction& p = traced.value();
  const Replay run = replay_peaks(p.trace, recipe);
  if (is_overflow(run.peak_reserved_bytes)) return too_many_bytes();
  const Room room = room_of(recipe, *p.gpu);
  const std::int64_t headroom = headroom_of(room, run);
  return Weighed{run.peak_allocated_bytes, run.peak_reserved_bytes, answer_of(p.trace, run, recipe, room), headroom,
                 headroom - static_cast<std::int64_t>(room.margin)};
}

Result<Prediction> predict_run(const ModelConfig& config, const Recipe& recipe, const PredictOptions& options) {
  Result<Prediction> traced = traced_run(config, recipe, options);
  if (!traced.ok()) return traced;
  Prediction& p = traced.value();
  if (recipe.stack == Stack::megatron ||
      (is_torchtitan(recipe.stack) && times(times(recipe.tp, recipe.pp), recipe.ep) > 1)) {
    p.trainable = p.params;  // the trace has one rank's part
  } else if (recipe.stack != Stack::course) {
    p.trainable = trainable_elements(p.trace);
  } else if (recipe.task == Task::generate) {
    p.trainable = 0;
  } else if (recipe.method != Method::full) {
    p.trainable = course_adapter_parameters(config, recipe);
  }
  p.replay = replay(p.trace, {.allocator = allocator_options(recipe), .record_addresses = options.record_addresses});
  if (is_overflow(p.replay.peak_reserved_bytes)) return too_many_bytes();
  p.at_peak = ledger_at(p.trace, p.replay.peak_event);
  p.verdict = verdict_of(p);
  return traced;
}

}  // namespace ledger
