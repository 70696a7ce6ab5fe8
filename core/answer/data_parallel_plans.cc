// data_parallel_plans.cc - the plans of the stack `hf`: who shards what, micro-batch against accumulation,
// checkpointing.

#include <algorithm>
#include <array>

#include "core/answer/data_parallel_time.h"
#include "core/answer/plans.h"
#include "core/answer/prediction.h"
#include "core/base/order.h"
#include "core/training/step.h"
#include "core/training/support.h"

namespace ledger {
namespace {

constexpr std::uint64_t kMostMicroBatch = 32, kMostShardedTraced = 64;

// Of these many micro-batches the first, one between and the last are all that differ; more of them need no more
// memory.
constexpr std::uint64_t kTracedMicroBatches = 3;

// Who shares what among the ranks. In the order in which plans of one length are shown.
struct Engine {
  std::uint64_t zero, fsdp;
  bool reshards;
  Offload offload = Offload::none;
};
constexpr std::array kEngines = {
    Engine{0, 0, true},  // DDP, or one GPU alone
    Engine{1, 0, true},
    Engine{2, 0, true},
    Engine{0, 2, false},
    Engine{0, 1, false},
    Engine{0, 2, true},
    Engine{0, 1, true},
    Engine{3, 0, true},
    Engine{2, 0, true, Offload::optimizer},
    Engine{3, 0, true, Offload::optimizer},
    Engine{0, 2, true, Offload::params},
    Engine{0, 1, true, Offload::params},
    Engine{3, 0, true, Offload::params},
};

bool on_host(const Engine& engine) {
  return engine.offload != Offload::none;
}

// What the recipe would be on one GPU of the stack: everything that has to do with many of them is the search's own.
Recipe alone(const Recipe& open) {
  const Recipe defaults;
  Recipe r = open;
  r.stack = open.stack == Stack::hf_4 ? Stack::hf_4 : Stack::hf;
  if (open.stack == Stack::megatron) {
    r.precision = defaults.precision;
    r.loss = defaults.loss;
  }
  if (open.fsdp != 0 && open.precision == Precision::fp32 && open.param_dtype == ShardDtype::bf16)
    r.precision = Precision::amp_bf16;  // as accelerate has it without FSDP
  r.dp = r.tp = r.pp = r.cp = r.ep = r.grad_accum = r.micro_batches = 1;
  r.sequence_parallel = r.ddp_bucket_view = r.compile = r.float8 = r.float8_all_gather = false;
  if (r.stack != open.stack) r.liger = false;
  r.pipeline_schedule = defaults.pipeline_schedule;
  r.decoder_first_pipeline_num_layers = r.decoder_last_pipeline_num_layers = 0;
  r.num_layers_per_virtual_pipeline_stage = defaults.num_layers_per_virtual_pipeline_stage;
  r.transformer_impl = defaults.transformer_impl;
  r.cp_comm_type = defaults.cp_comm_type;
  r.cp_a2a_ranks = defaults.cp_a2a_ranks;
  r.zero = r.fsdp = 0;
  r.units = defaults.units;
  r.offload = Offload::none;
  r.reduce_bucket_size = r.prefetch_bucket_size = r.param_persistence_threshold = 0;
  r.max_live_parameters = defaults.max_live_parameters;
  r.max_reuse_distance = defaults.max_reuse_distance;
  r.sub_group_size = defaults.sub_group_size;
  r.overlap_comm = defaults.overlap_comm;
  r.deepspeed = defaults.deepspeed;
  r.reduce_scatter = defaults.reduce_scatter;
  r.reshard_after_forward = true;
  r.fsdp_activation_checkpointing = false;
  return r;
}

// FSDP has a mixed precision of its own, in which accelerate puts its word for autocast; DeepSpeed gets that word.
void adapt_precision(Recipe& r, const Recipe& open) {
  if (r.fsdp == 0 && r.zero == 0) return;
  r.autocast = false;
  if (r.fsdp == 0) return;
  if (r.precision == Precision::amp_bf16) {
    r.precision = Precision::fp32;
    r.param_dtype = ShardDtype::bf16;
  } else if (open.fsdp == 0) {
    r.param_dtype = r.precision == Precision::fp32 ? ShardDtype::fp32 : ShardDtype::bf16;
  }
}

struct ShardedChoice {
  Engine engine;
  std::uint64_t batch = 1;
  Checkpointing checkpointing = Checkpointing::none;
  StepTime time{};
};

// What the host's bus and its processor take of a step is not computed: such plans come last, and last of all those
// whose weights travel in every pass.
bool ends_earlier(const ShardedChoice& a, const ShardedChoice& b) {
  if (a.engine.offload != b.engine.offload) return a.engine.offload < b.engine.offload;
  if (a.time.seconds() != b.time.seconds()) return a.time.seconds() < b.time.seconds();
  return a.time.data_bytes < b.time.data_bytes;
}

bool same(const Engine& a, const Engine& b) {
  return a.zero == b.zero && a.fsdp == b.fsdp && a.reshards == b.reshards && a.offload == b.offload;
}

bool keeps_more(const ShardedChoice& a, const ShardedChoice& than) {
  return same(a.engine, than.engine) && a.batch >= than.batch &&
         (a.checkpointing == Checkpointing::none || than.checkpointing == Checkpointing::full);
}

class ShardedSearch {
 public:
  ShardedSearch(const ModelConfig& config, const Recipe& recipe, const PlanQuestion& question, SharedSearch& shared)
      : config_(config), open_(recipe), base_(alone(recipe)), question_(question), shared_(shared) {}

  // Operators of one GPU, by which every plan's time is computed.
  std::optional<Problem> measure() {
    if (!shared_.operators.empty()) return std::nullopt;
    for (const Checkpointing checkpointing : kCheckpoints) {
      Recipe r = base_;
      r.batch = 1;
      r.checkpointing = checkpointing;
      const Result<Trace> trace = trace_step(config_, r, {.steps = 1, .operands = true, .weights = {}, .adamw = {}});
      if (!trace.ok()) return trace.problem();
      shared_.operators.push_back(*DataParallelModel::of(trace.value(), *find_gpu(r.gpu)));
    }
    return std::nullopt;
  }

  void list() {
    if (question_.global_batch % question_.gpus != 0) return;
    const std::uint64_t each = question_.global_batch / question_.gpus;
    for (const Engine& engine : kEngines) {
      // DeepSpeed alone offloads on one GPU, too: the optimizer from stage 2, parameters from stage 3.
      const bool of_one = engine.zero == (engine.offload == Offload::params ? 3 : 2) && on_host(engine);
      if (question_.gpus == 1 && !same(engine, kEngines.front()) && !of_one) continue;
      if (question_.keep == PlanQuestion::Keep::on_gpu && on_host(engine)) continue;
      if (question_.keep == PlanQuestion::Keep::on_host && !on_host(engine)) continue;
      for (std::uint64_t batch = std::min(each, kMostMicroBatch); batch > 0; --batch) {
        if (each % batch != 0) continue;
        for (const Checkpointing checkpointing : kCheckpoints)
          add({engine, batch, checkpointing, {}});
      }
    }
    sort_stably<ShardedChoice, ends_earlier>(choices_);
  }

  Result<Plans> run() {
    for (const ShardedChoice& choice : choices_) {
      if (found_.plans.size() == question_.wanted) break;
      if (speaks_for(refuted_, choice) || speaks_for(shown_, choice)) continue;
      const Needs least = leanest_of(choice.engine, Checkpointing::full);
      if (least.allocated == 0 || !is_news(found_, least.allocated)) continue;
      const Needs alike = leanest_of(choice.engine, choice.checkpointing);
      if (!found_.complete) break;
      if (alike.allocated == 0 || !is_news(found_, alike.allocated)) continue;
      const bool known = choice.batch == 1 && alike.allocated != kUnknown;
      const Result<Needs> needs = known ? Result<Needs>(alike) : needs_if_it_fits(choice);
      if (!needs.ok()) return needs.problem();
      if (!found_.complete) break;
      const auto [allocated, host] = needs.value();
      if (allocated == 0) {
        refuted_.push_back(choice);
      } else if (is_news(found_, allocated)) {
        found_.plans.push_back({recipe_of(choice), choice.time, allocated, host});
        shown_.push_back(choice);
      }
    }
    return std::move(found_);
  }

  // Whether there would be a plan: the leanest of an engine fits. (Nothing known of it counts, too.)
  bool has_any() {
    return std::any_of(choices_.rbegin(), choices_.rend(), [&](const ShardedChoice& choice) {
      return leanest_of(choice.engine, Checkpointing::full).allocated != 0;
    });
  }

 private:
  static constexpr std::array kCheckpoints = {Checkpointing::none, Checkpointing::full};
  static constexpr Bytes kUnknown = 1;
  struct Needs {
    Bytes allocated = 0, host = 0;
  };

  Recipe recipe_of(const ShardedChoice& c) const {
    Recipe r = base_;
    r.dp = question_.gpus;
    r.batch = c.batch;
    r.grad_accum = question_.global_batch / times(r.dp, c.batch);
    r.checkpointing = c.checkpointing;
    r.zero = c.engine.zero;
    r.fsdp = c.engine.fsdp;
    r.reshard_after_forward = c.engine.reshards;
    r.offload = c.engine.offload;
    const bool torch_adamw = r.optimizer == Optimizer::adamw_foreach || r.optimizer == Optimizer::adamw_forloop;
    if (r.zero != 0 && on_host(c.engine) && torch_adamw) r.optimizer = Optimizer::adamw_fused;  // DeepSpeedCPUAdam
    if (r.dp > 1 && r.zero == 0 && r.fsdp == 0) r.ddp_bucket_view = open_.ddp_bucket_view;
    adapt_precision(r, open_);
    return r;
  }

  void add(ShardedChoice choice) {
    const Recipe recipe = recipe_of(choice);
    if (auto problem = unsupported(config_, recipe)) {
      leave_out(std::move(*problem));
      return;
    }
    const DataParallelModel& model = shared_.operators[choice.checkpointing == Checkpointing::none ? 0 : 1];
    choice.time = model.time(recipe, *links_of(*find_gpu(recipe.gpu)));
    choices_.push_back(choice);
    ++found_.valid;
  }

  void leave_out(Problem problem) {
    for (LeftOut& one : found_.left_out) {
      if (one.problem.expected != problem.expected || one.problem.where != problem.where) continue;
      ++one.combinations;
      return;
    }
    found_.left_out.push_back({std::move(problem), 1});
  }

  // What an engine takes with the smallest micro-batch, checkpointed or not: if that does not fit, or is no less than
  // what is shown already, none of its plans needs a further look. 0: it does not fit; kUnknown: refused by itself.
  Needs leanest_of(const Engine& engine, Checkpointing checkpointing) {
    const auto number =
        std::find_if(kEngines.begin(), kEngines.end(), [&](const Engine& e) { return same(e, engine); }) -
        kEngines.begin();
    for (const SharedSearch::Leanest& known : shared_.leanest) {
      if (known.gpus == question_.gpus && known.engine == number && known.checkpointing == checkpointing)
        return {known.allocated_bytes, known.host_bytes};
    }
    const Result<Needs> found = needs_if_it_fits({engine, 1, checkpointing, {}});
    if (!found_.complete) return {};
    const Needs needs = found.ok() ? found.value() : Needs{kUnknown, 0};
    shared_.leanest.push_back({question_.gpus, number, checkpointing, needs.allocated, needs.host});
    return needs;
  }

  // Partitions of ZeRO-1 and 2 differ: the last rank's gradients come first, when most activations are still there. All
  // other ranks are alike. 0: it does not fit.
  Result<Needs> needs_if_it_fits(const ShardedChoice& choice) {
    Recipe recipe = recipe_of(choice);
    recipe.grad_accum = std::min(recipe.grad_accum, kTracedMicroBatches);
    if (floor_of(recipe) > usable_) return Needs{};
    if (found_.traced == kMostShardedTraced) {
      found_.complete = false;
      return Needs{};
    }
    ++found_.traced;
    Needs most;
    // DeepSpeed makes them before the first step. Parameters that no loss depends on, as of LLaVA's last vision layer,
    // have none: they are no sixteenth of a model.
    const Bytes states = recipe.zero == 0 ? states_of(recipe) / 16 * 15 : 0;
    const bool differ = recipe.zero == 1 || recipe.zero == 2;
    for (std::uint64_t rank = 0; rank < recipe.dp; rank += std::max<std::uint64_t>(recipe.dp - 1, 1)) {
      const Result<RankRun> run = run_rank_if_it_fits(config_, recipe, rank, states);
      if (!run.ok()) return run.problem();
      if (!run.value().fits) return Needs{};
      most.allocated = std::max(most.allocated, run.value().replay.peak_allocated_bytes);
      most.host = std::max(most.host, run.value().host_bytes);
      if (!differ) break;
    }
    return most;
  }

  // Weights, or this rank's share of them, and AdamW's states of them: no plan needs less that does not offload them.
  Bytes floor_of(const Recipe& r) const {
    if (r.offload == Offload::params) return 0;
    const bool whole = r.fsdp == 0 && r.zero != 3;
    return plus(shared_.operators.front().weight_bytes(element_of(r)) / (whole ? 1 : r.dp), states_of(r));
  }

  Bytes states_of(const Recipe& r) const {
    if (!plain_adamw(r) || r.offload != Offload::none) return 0;
    const Bytes moments =
        r.zero != 0 ? 3 * 4 : 2 * (r.method == Method::full ? element_of(r) : 2);  // in ZeRO masters, too
    return times(shared_.operators.front().trained_elements(), moments) / (r.fsdp == 0 && r.zero == 0 ? 1 : r.dp);
  }

  static Bytes element_of(const Recipe& r) { return r.precision == Precision::bf16 || r.zero != 0 ? 2 : 4; }

  // One of `known` needs no more: what does not fit, or one that is quicker.
  static bool speaks_for(const std::vector<ShardedChoice>& known, const ShardedChoice& choice) {
    return std::any_of(known.begin(), known.end(), [&](const ShardedChoice& one) { return keeps_more(choice, one); });
  }

  const ModelConfig& config_;
  const Recipe& open_;
  Recipe base_;
  PlanQuestion question_;
  Bytes usable_ = base_.memory_limit_bytes != 0 ? base_.memory_limit_bytes : find_gpu(base_.gpu)->usable_bytes;
  SharedSearch& shared_;  // operators: by kCheckpoints
  std::vector<ShardedChoice> choices_, refuted_, shown_;
  Plans found_;
};

}  // namespace

// As advice.cc's changes have it.
Recipe with_method(const Recipe& recipe, Method method) {
  Recipe r = recipe;
  if (r.method == method) return r;
  if (r.method == Method::qlora) r.autocast = false;
  r.method = method;
  if (method == Method::full) r.dora = false;
  if (method == Method::qlora) {
    r.precision = Precision::bf16;
    r.autocast = true;
  }
  return r;
}

Result<Plans> find_data_parallel_plans(const ModelConfig& config, const Recipe& recipe, const PlanQuestion& question) {
  SharedSearch shared;
  return find_data_parallel_plans(config, recipe, question, shared);
}

Result<Plans> find_data_parallel_plans(const ModelConfig& config, const Recipe& recipe, const PlanQuestion& question,
                                       SharedSearch& shared) {
  ShardedSearch search(config, recipe, question, shared);
  if (auto problem = search.measure()) return *problem;
  search.list();
  return search.run();
}

Result<bool> has_data_parallel_plans(const ModelConfig& config, const Recipe& recipe, const PlanQuestion& question,
                                     SharedSearch& shared) {
  ShardedSearch search(config, recipe, question, shared);
  if (auto problem = search.measure()) return *problem;
  search.list();
  return search.has_any();
}

}  // namespace ledger
