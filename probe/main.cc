// main.cc - probe: predict, or run the same trace for real and measure.

#include <algorithm>
#include <cstdio>
#include <optional>

#include "core/answer/count_report.h"
#include "core/answer/prediction.h"
#include "core/answer/report.h"
#include "core/api.h"
#include "core/inference/generate.h"
#include "probe/card.h"
#include "probe/checkpoints.h"
#include "probe/cuda/availability.h"
#include "probe/cuda/gpu_ranks.h"
#include "probe/cuda/run_cuda.h"
#include "probe/cuda/which_gpu.h"
#include "probe/device_run.h"
#include "probe/explain.h"
#include "probe/files.h"
#include "probe/finish.h"
#include "probe/flags.h"
#include "probe/host/run_host.h"
#include "probe/inputs.h"
#include "probe/ranks/join.h"
#include "probe/table.h"
#include "probe/texts.h"

namespace ledger {
namespace {

constexpr std::uint64_t kLargestLog = 256u << 20;  // logs are read whole and explained from their end

int dry_run(const Flags& flags, const Inputs& inputs) {
  const Result<Prediction> prediction = predict_run(inputs.config, inputs.recipe);
  if (!prediction.ok()) {
    // What was asked for cannot be had; what the model is can.
    const bool of_the_model = !inputs.config.untraced.empty();
    emit(flags, write_count_report(inputs.config, prediction.problem()), of_the_model ? count_line(inputs.config) : "");
    return fail(kUsage, say(prediction.problem(), flags.model));
  }
  return emit(flags, write_report(prediction.value()), prediction_table(prediction.value()));
}

void show_progress(const Trace& trace, std::uint32_t phase) {
  const bool last = phase + 1 == trace.phases.size();
  std::fprintf(stderr, "\r%-60s\r", last ? "" : trace.phases[phase].c_str());
}

Bytes physical_memory() {
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page = sysconf(_SC_PAGE_SIZE);
  return pages > 0 && page > 0 ? times(static_cast<Bytes>(pages), static_cast<Bytes>(page)) : kOverflow;
}

// torchtitan's experts take turns, too, place by place of a rank's sequences.
std::string part_of_torchtitan_not_run(const ModelConfig& config, const Recipe& recipe) {
  if (config.moe.experts == 0 || recipe.batch * recipe.seq * config.moe.per_token % config.moe.experts == 0) return "";
  return "experts that get unequal numbers of tokens are predicted only: " + std::to_string(config.moe.experts) +
         " experts must divide batch times seq times " + std::to_string(config.moe.per_token) + ".";
}

// What of Megatron's step is a size alone, or would not be computed as it is there.
std::string part_of_megatron_not_run(const ModelConfig& config, const Recipe& recipe) {
  // Experts take turns, place by place of the sequence, of which a rank that shares it has two pieces.
  const std::uint64_t cuts = (recipe.cp == 1 ? 1 : 2 * recipe.cp) * (recipe.sequence_parallel ? recipe.tp : 1);
  const std::uint64_t places = recipe.seq / cuts;
  if (config.moe.experts != 0 && places * config.moe.per_token % config.moe.experts != 0)
    return "experts that get unequal numbers of tokens are predicted only: " + std::to_string(config.moe.experts) +
           " experts must divide the places of a piece of a sequence on a rank (" + std::to_string(places) +
           ") times " + std::to_string(config.moe.per_token) + ".";
  // Masks are drawn by how many forward passes have begun: several have between one and its recomputation.
  const bool drops = config.embedding_dropout + config.residual_dropout + config.attention_dropout > 0;
  if (drops && recipe.pp > 1 && recipe.checkpointing != Checkpointing::none)
    return "recomputation of dropped activations in a pipeline is predicted only.";
  return "";
}

// Why no executor can play this trace; empty when one can. `device` as the flag has it.
std::string not_playable(const Prediction& p, const std::string& device) {
  if (p.recipe.stack == Stack::course) return "--stack course is arithmetic, not a program: it cannot run.";
  if (p.recipe.stack == Stack::megatron) {
    if (const std::string why = part_of_megatron_not_run(p.config, p.recipe); !why.empty()) return why;
  }
  if (is_torchtitan(p.recipe.stack)) {
    if (const std::string why = part_of_torchtitan_not_run(p.config, p.recipe); !why.empty()) return why;
  }
  const auto skips = [](const std::string& phase) { return phase.starts_with(kSkippedPhase); };
  if (std::any_of(p.trace.phases.begin(), p.trace.phases.end(), skips)) {
    return "--device " + device + " generates every token: at most " + std::to_string(kStepsPlayedInFull + 1) +
           " with --new-tokens.";
  }
  if (p.recipe.task == Task::generate && p.recipe.attention == Attention::flash && p.config.sliding_window != 0 &&
      p.recipe.seq >= p.config.sliding_window) {
    return "--device " + device + " has no attention kernel that looks back over a window only.";
  }
  return "";
}

std::string not_for_the_host(const Prediction& p) {
  const std::string why = not_playable(p, "host");
  if (!why.empty()) return why;
  const std::string op = first_not_computed(p.trace);
  return op.empty() ? "" : "--device host has no kernel for " + op + ", which this recipe runs.";
}

RankChoice choose_rank(const Flags& flags, const Inputs& inputs) {
  if (flags.as_rank.empty()) return launched_rank(inputs.recipe, [](const char* name) { return std::getenv(name); });
  return stand_in_for(flags.as_rank, inputs.recipe, [&](std::uint64_t rank) {
    PredictOptions options;
    options.one_rank = true;
    options.trace.rank = rank;
    const Result<Prediction> one = predict_run(inputs.config, inputs.recipe, options);
    return one.ok() ? one.value().replay.peak_allocated_bytes : 0;
  });
}

bool shows_progress(const Flags& flags, const RankChoice& choice) {
  return !flags.quiet && isatty(STDERR_FILENO) != 0 && (choice.stand_in || choice.place.rank == 0);
}

std::string not_for_ranks(const Flags& flags, const RankChoice& choice) {
  if (flags.budget_s == 0 || choice.place.world == 1 || choice.stand_in) return "";
  return "--budget is for one process: ranks would stop at different steps and wait for each other. Use --steps or "
         "--timeout.";
}

int host_run(const Flags& flags, const Inputs& inputs) {
  const RankChoice choice = choose_rank(flags, inputs);
  if (!choice.error.empty()) return fail(kUsage, choice.error + ".");
  if (const std::string why = not_for_ranks(flags, choice); !why.empty()) return fail(kUsage, why);
  PredictOptions options;
  options.steps = flags.steps;
  options.operands = options.record_addresses = options.one_rank = true;
  options.trace.rank = choice.place.rank;
  const Result<Prediction> prediction = predict_run(inputs.config, inputs.recipe, options);
  if (!prediction.ok()) return fail(kUsage, say(prediction.problem(), flags.model));
  const Prediction& p = prediction.value();
  if (const std::string why = not_for_the_host(p); !why.empty()) {
    return fail(kUsage, why + " Use --dry-run.");
  }
  const Bytes memory = physical_memory();
  if (p.replay.peak_reserved_bytes > memory && inputs.recipe.memory_limit_bytes == 0) {
    return fail(kUsage, "this run needs " + human_bytes(p.replay.peak_reserved_bytes) + " and this machine has " +
                            human_bytes(memory) + ": --device host is for small models. Use --dry-run to predict.");
  }
  ReplayOptions replay_options{.allocator = allocator_options(inputs.recipe), .record_addresses = true};
  if (inputs.recipe.memory_limit_bytes != 0) replay_options.allocator.limit = inputs.recipe.memory_limit_bytes;
  Joined joined = join_ranks(choice, plan_of(p, flags.steps), flags.rank_timeout_s);
  if (joined.ranks == nullptr) return fail(joined.code, joined.error + ".");
  HostRunOptions host;
  host.executor.ranks = joined.ranks.get();
  if (shows_progress(flags, choice)) {
    host.executor.on_phase_end = [&p](const HostExecutor&, std::uint32_t phase) { show_progress(p.trace, phase); };
  }
  host.limits = limits_of(flags);
  host.limits.hung = [&](const MeasuredResult& part) { leave(flags, p, part, nullptr, choice); };
  HostRun run = run_on_host(p.trace, replay_options, host);
  return finish_run(flags, p, run, nullptr, *joined.ranks, choice);
}

constexpr const char* kInstead = ". Use --dry-run to predict, or --device host to compute a small model on the CPU.";

// Why a GPU cannot play this trace; empty when it can.
std::string not_for_the_gpu(const Prediction& p, const device::Kernels& kernels) {
  const std::string why = not_playable(p, "cuda");
  if (!why.empty()) return why;
  const std::string op = device::first_not_computed(p.trace, kernels);
  return op.empty() ? "" : "--device cuda has no kernel for " + op + ", which this recipe runs.";
}

int cuda_run(const Flags& flags, Inputs inputs) {
  const RankChoice choice = choose_rank(flags, inputs);
  if (!choice.error.empty()) return fail(kUsage, choice.error + ".");
  if (const std::string why = not_for_ranks(flags, choice); !why.empty()) return fail(kUsage, why);
  const RankSeat seat{choice.place.rank, choice.place.world};
  const cuda::Facts machine = cuda::collect_facts();
  if (const std::string why = cuda::why_not(machine); !why.empty()) return fail(kNoGpu, why + kInstead);
  const cuda::ChosenGpu chosen = choice.stand_in ? cuda::ChosenGpu() : cuda::gpu_of_rank(choice.place, machine);
  if (!chosen.error.empty()) return fail(kNoGpu, chosen.error + ".");
  const DeviceFacts facts = cuda::gpu_facts(chosen.number);
  if (const Gpu* card = find_card(facts.name, facts.total_bytes)) inputs.recipe.gpu = card->id;
  PredictOptions options;
  options.steps = flags.steps;
  options.operands = options.record_addresses = options.one_rank = true;
  options.trace.rank = seat.rank;
  Result<Prediction> prediction = predict_run(inputs.config, inputs.recipe, options);
  if (!prediction.ok()) return fail(kUsage, say(prediction.problem(), flags.model));
  cuda::OpenedGpu gpu = cuda::open_gpu(chosen.number, flags.allow_busy);
  if (gpu.device == nullptr) {
    if (gpu.busy) return fail(kBusy, gpu.error + ", which would spoil the numbers: stop that, or --allow-busy.");
    return fail(kNoGpu, gpu.error + kInstead);
  }
  if (inputs.recipe.allocator == AllocatorKind::torch_expandable) {
    if (const std::string no = gpu.device->use_expandable_segments(); !no.empty()) {  // PyTorch warns and goes on, too
      std::fprintf(stderr, "probe: segments do not expand here, and are taken by cudaMalloc: %s.\n", no.c_str());
      inputs.recipe.allocator = AllocatorKind::torch;
      prediction = predict_run(inputs.config, inputs.recipe, options);
    }
  }
  if (const std::string no = not_for_the_gpu(prediction.value(), gpu.device->kernels()); !no.empty()) {
    return fail(kUsage, no + " Use --dry-run.");
  }
  const AttentionScratch scratch = gpu.device->prepare(prediction.value().trace);
  if (scratch.planned) {  // what cuDNN works in belongs to the prediction, too
    options.trace.cudnn_forward_bytes = scratch.forward_bytes;
    options.trace.cudnn_backward_bytes = scratch.backward_bytes;
    prediction = predict_run(inputs.config, inputs.recipe, options);
  } else if (!scratch.declined.empty() && !flags.quiet) {
    std::fprintf(stderr, "probe: attention is computed by kernels of its own, not by cuDNN: %s.\n",
                 scratch.declined.c_str());
  }
  const Prediction& p = prediction.value();
  ReplayOptions replay_options{.allocator = allocator_options(inputs.recipe), .record_addresses = true};
  if (inputs.recipe.memory_limit_bytes != 0) replay_options.allocator.limit = inputs.recipe.memory_limit_bytes;
  const cuda::GpuRanks ranks =
      cuda::join_gpu_ranks(choice, plan_of(p, flags.steps), flags.rank_timeout_s, *gpu.device, &p.trace);
  if (ranks.processes.ranks == nullptr) return fail(ranks.processes.code, ranks.processes.error + ".");
  DeviceRunOptions run_options{.poison = flags.paranoid, .seat = seat, .limits = limits_of(flags)};
  if (ranks.gpus != nullptr) {
    run_options.ranks = ranks.gpus.get();
    run_options.messages = ranks.messages;
    run_options.nccl = [&] { return ranks.gpus->memory(); };
    run_options.nccl_version = ranks.library->version();
  }
  run_options.hung = [&](const DeviceRun& part) { leave(flags, p, part, &part, choice); };
  if (shows_progress(flags, choice)) {
    run_options.on_phase_end = [&p](std::uint32_t phase) { show_progress(p.trace, phase); };
  }
  DeviceRun run = run_on_device(p.trace, replay_options, *gpu.device, run_options);
  return finish_run(flags, p, run, &run, *ranks.processes.ranks, choice);
}

// Without a model the text alone; with one, its prediction as well.
int explain_error(const Flags& flags) {
  const FileText text = read_file(flags.explain_oom, kLargestLog);
  if (!text.error.empty()) return fail(kUsage, text.error);
  std::optional<Prediction> prediction;
  if (!flags.model.empty()) {
    const Inputs inputs = read_inputs(flags);
    if (inputs.code != kOk) return inputs.code;
    Result<Prediction> predicted = predict_run(inputs.config, inputs.recipe);
    if (!predicted.ok()) return fail(kUsage, say(predicted.problem(), flags.model));
    prediction = std::move(predicted.value());
  }
  const oom::Explanation explanation = explain_text(text.text, prediction ? &*prediction : nullptr);
  return emit(flags, oom::write_explanation(explanation), explanation_text(explanation));
}

int run(const Flags& flags) {
  if (flags.version) {
    std::printf("probe %s\n", version());
    return kOk;
  }
  if (flags.list_gpus) {
    std::fputs(gpu_table().c_str(), stdout);
    return kOk;
  }
  if (flags.list_models) {
    std::fputs(checkpoint_table().c_str(), stdout);
    return kOk;
  }
  if (!flags.explain_oom.empty()) return explain_error(flags);
  const Inputs inputs = read_inputs(flags);
  if (inputs.code != kOk) return inputs.code;
  if (flags.dry_run && !flags.as_rank.empty())
    return fail(kUsage, "--as-rank runs and measures one rank; --dry-run predicts the first of a recipe's.");
  if (flags.dry_run) return dry_run(flags, inputs);
  if (flags.device == Device::host) return host_run(flags, inputs);
  return cuda_run(flags, inputs);
}

}  // namespace
}  // namespace ledger

int main(int argc, char** argv) {
  const ledger::ParsedFlags parsed = ledger::parse_flags(argc, argv);
  return parsed.exit_code ? *parsed.exit_code : ledger::run(parsed.flags);
}
