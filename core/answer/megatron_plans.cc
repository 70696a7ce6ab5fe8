// megatron_plans.cc - the plans of the stack `megatron`.
#include <algorithm>
#include <array>

#include "core/answer/plans.h"
#include "core/answer/prediction.h"
#include "core/base/order.h"
#include "core/models/megatron.h"
#include "core/training/megatron_step.h"

namespace ledger {
namespace {

constexpr std::uint64_t kMostParts = 16, kMostBatch = 8;
constexpr std::uint64_t kMostTraced = 48;  // plans of one search; some 20 ms each

// What a plan chooses. Each in turn needs less memory for a higher value, but `batch` more.
struct Choice {
  std::uint64_t tp, pp, cp, ep, batch;
  PipelineSchedule schedule;
  Checkpointing checkpointing;
  StepTime time;
};

bool quicker(const Choice& a, const Choice& b) {
  return a.time.seconds() < b.time.seconds();
}

// In the order of what they keep, most first.
constexpr std::array kCheckpointing = {Checkpointing::none, Checkpointing::selective, Checkpointing::full};

std::size_t kept_less(Checkpointing value) {
  return static_cast<std::size_t>(std::find(kCheckpointing.begin(), kCheckpointing.end(), value) -
                                  kCheckpointing.begin());
}

bool needs_more(const Choice& a, const Choice& than) {
  return a.pp == than.pp && a.schedule == than.schedule && a.tp <= than.tp && a.cp <= than.cp && a.ep <= than.ep &&
         a.batch >= than.batch && kept_less(a.checkpointing) <= kept_less(than.checkpointing);
}

class Search {
 public:
  Search(const ModelConfig& config, const Recipe& recipe, const PlanQuestion& question)
      : config_(config), base_(of_megatron(recipe)), question_(question) {}

  std::optional<Problem> problem() const { return unsupported_in_megatron(config_, base_); }

  void list() {
    for (std::uint64_t pp = 1; pp <= config_.num_hidden_layers; ++pp) {
      if (layers_of_stage(config_, {.pp = pp}, 0) == 0) continue;
      for (std::uint64_t tp = 1; tp <= links().gpus; tp *= 2) {
        for (std::uint64_t cp = 1; cp <= kMostParts; cp *= 2) {
          if (question_.gpus % times(times(tp, pp), cp) == 0) list_experts({tp, pp, cp, 1, 1, {}, {}, {}});
        }
      }
    }
    sort_stably<Choice, quicker>(choices_);
  }

  Result<Plans> run() {
    Plans found;
    found.valid = choices_.size();
    for (const Choice& choice : choices_) {
      if (found.plans.size() == question_.wanted) break;
      const Bytes floor = floor_of(choice);
      if (floor > usable_ || refuted(choice) || !is_news(found, floor)) continue;
      if (found.traced == kMostTraced) {
        found.complete = false;
        break;
      }
      ++found.traced;
      const Recipe recipe = recipe_of(choice);
      const Result<Bytes> allocated = allocated_if_it_fits(recipe);
      if (!allocated.ok()) return allocated.problem();
      if (allocated.value() == 0) {
        refuted_.push_back(choice);
      } else if (is_news(found, allocated.value())) {
        found.plans.push_back({recipe, choice.time, allocated.value()});
      }
    }
    return found;
  }

  Links links() const { return *links_of(*find_gpu(base_.gpu)); }

 private:
  // The rest of the recipe is Megatron's, whatever stack was open.
  static Recipe of_megatron(const Recipe& recipe) {
    Recipe r;
    r.stack = Stack::megatron;
    const bool own = recipe.precision == Precision::megatron_bf16_bf16grad;
    r.precision = own ? Precision::megatron_bf16_bf16grad : Precision::megatron_bf16;
    r.loss = Loss::vocab_parallel;
    r.zero = 1;
    r.seq = recipe.seq;
    r.gpu = recipe.gpu;
    r.memory_limit_bytes = recipe.memory_limit_bytes;
    r.allocator = recipe.allocator;
    return r;
  }

  // The first and the last stage tell: those between have fewer micro-batches in flight than the first, and no
  // embedding. 0: one of them does not fit.
  Result<Bytes> allocated_if_it_fits(const Recipe& recipe) const {
    Bytes most = 0;
    for (std::uint64_t stage = 0; stage < recipe.pp; stage += std::max<std::uint64_t>(recipe.pp - 1, 1)) {
      const Result<RankRun> run = run_stage(config_, recipe, stage);
      if (!run.ok()) return run.problem();
      if (!run.value().fits) return Bytes{0};
      most = std::max(most, run.value().replay.peak_allocated_bytes);
    }
    return most;
  }

  // Experts whole, each rank of ep with other ones.
  void list_experts(Choice choice) {
    const std::uint64_t most = std::max<std::uint64_t>(config_.moe.experts, 1);
    for (choice.ep = 1; choice.ep <= most; choice.ep *= 2)
      list_batches(choice);
  }

  void list_batches(Choice choice) {
    const std::uint64_t dp = data_parallel(choice);
    for (choice.batch = 1; choice.batch <= kMostBatch; choice.batch *= 2) {
      if (question_.global_batch % times(dp, choice.batch) != 0) continue;
      for (const PipelineSchedule schedule : {PipelineSchedule::one_f_one_b, PipelineSchedule::interleaved}) {
        for (const Checkpointing checkpointing : kCheckpointing) {
          choice.schedule = schedule;
          choice.checkpointing = checkpointing;
          add(choice);
        }
      }
    }
  }

  void add(Choice choice) {
    const Recipe recipe = recipe_of(choice);
    if (unsupported_in_megatron(config_, recipe)) return;
    const std::optional<StepTime> time = step_time(config_, recipe);
    if (!time) return;
    choice.time = *time;
    choices_.push_back(choice);
  }

  std::uint64_t data_parallel(const Choice& c) const { return question_.gpus / times(times(c.tp, c.pp), c.cp); }

  Recipe recipe_of(const Choice& c) const {
    Recipe r = base_;
    r.tp = c.tp;
    r.pp = c.pp;
    r.cp = c.cp;
    r.dp = data_parallel(c);
    r.ep = c.ep;
    r.etp = config_.moe.experts == 0 ? 0 : 1;
    r.batch = c.batch;
    r.micro_batches = question_.global_batch / times(r.dp, c.batch);
    r.sequence_parallel = c.tp > 1;
    r.pipeline_schedule = c.schedule;
    r.checkpointing = c.checkpointing;
    return r;
  }

  // No plan needs less than its states and what its first stage keeps for backward.
  Bytes floor_of(const Choice& c) const { return plus(states_of(c), kept_by(c)); }

  // What went into each layer, of as many micro-batches as fill the pipeline; and where not all of it is recomputed,
  // what the MLP's activation reads and makes (megatron_ops.h).
  Bytes kept_by(const Choice& c) const {
    const std::uint64_t micro_batches = question_.global_batch / times(data_parallel(c), c.batch);
    const std::uint64_t layers = times(config_.num_hidden_layers / c.pp, std::min(c.pp, micro_batches));
    const std::uint64_t inner = times(config_.style.feed == Feed::gated ? 3 : 2, config_.intermediate_size);
    const bool recomputed = c.checkpointing == Checkpointing::full || config_.moe.experts != 0;
    const std::uint64_t width = plus(config_.hidden_size, recomputed ? 0 : inner);
    return times(layers, times(2, times(times(c.batch, base_.seq), width)) / times(c.tp, c.cp));
  }

  // Parameters and main gradients of a stage's layers, and this rank's share of 12 bytes a parameter.
  Bytes states_of(const Choice& c) const {
    const Bytes each = base_.precision == Precision::megatron_bf16 ? 2 + 4 : 2 + 2;
    const std::uint64_t embeddings = times(2, times(config_.vocab_size, config_.hidden_size));
    const std::uint64_t experts = expert_parameters(config_), others = plus(experts, embeddings);
    const std::uint64_t part = (parameters_ - std::min(parameters_, others)) / times(c.tp, c.pp);
    const std::uint64_t ranks = times(data_parallel(c), c.cp), own = experts / times(c.ep, c.pp);
    const Bytes rest = plus(times(part, each), times(part, 12) / ranks);
    return plus(rest, plus(times(own, each), times(times(own, 12), c.ep) / times(ranks, c.tp)));
  }

  bool refuted(const Choice& choice) const {
    return std::any_of(refuted_.begin(), refuted_.end(), [&](const Choice& one) { return needs_more(choice, one); });
  }

  const ModelConfig& config_;
  Recipe base_;
  PlanQuestion question_;
  std::uint64_t parameters_ = parameter_count(config_);
  Bytes usable_ = base_.memory_limit_bytes != 0 ? base_.memory_limit_bytes : find_gpu(base_.gpu)->usable_bytes;
  std::vector<Choice> choices_, refuted_;
};

}  // namespace

Result<Plans> find_megatron_plans(const ModelConfig& config, const Recipe& recipe, const PlanQuestion& question) {
  Search search(config, recipe, question);
  if (const auto problem = search.problem()) return *problem;
  search.list();
  return search.run();
}

}  // namespace ledger
