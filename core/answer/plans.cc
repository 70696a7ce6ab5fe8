#include "core/answer/plans.h"

#include <algorithm>

#include "core/answer/count_report.h"
#include "core/answer/data_parallel_time.h"
#include "core/answer/prediction.h"

namespace ledger {
namespace {

constexpr std::uint64_t kMostGpus = 1u << 20, kMostGlobalBatch = 1u << 24;
constexpr std::uint64_t kMostCards = 1024;

std::string stack_name(Stack stack) {
  Recipe named;
  named.stack = stack;
  return recipe_value(named, "stack");
}

struct Searched {
  Stack stack;
  Bounds bounds;
  Result<Plans> (*find)(const ModelConfig& config, const Recipe& recipe, const PlanQuestion& question);
};
constexpr Searched kSearched[] = {
    {Stack::hf, {kFastestShards, kSlowestShards}, find_data_parallel_plans},
    {Stack::megatron, {kFastest, kSlowest}, find_megatron_plans},
};

const Searched* search_of(Stack stack) {
  for (const Searched& row : kSearched) {
    if (row.stack == stack) return &row;
  }
  return nullptr;
}

std::optional<Problem> outside(const char* where, std::uint64_t value, std::uint64_t most) {
  if (value >= 1 && value <= most) return std::nullopt;
  return Problem{ProblemCode::out_of_range, where, std::to_string(value), "1.." + std::to_string(most), ""};
}

std::optional<Problem> problem_of(const Recipe& recipe, const PlanQuestion& question) {
  if (auto problem = outside("gpus", question.gpus, kMostGpus)) return problem;
  if (auto problem = outside("global_batch", question.global_batch, kMostGlobalBatch)) return problem;
  const Gpu* gpu = find_gpu(recipe.gpu);
  if (links_of(*gpu) && gpu->dense_bf16_tflops > 0) return std::nullopt;
  return Problem{ProblemCode::unsupported_recipe, "gpu", gpu->id, "plans_need_link_rates", ""};
}

}  // namespace

Result<Plans> find_plans(const ModelConfig& config, const Recipe& recipe, const PlanQuestion& question) {
  if (const auto problem = problem_of(recipe, question)) return *problem;
  const Searched* row = search_of(question.stack.value_or(recipe.stack));
  if (row == nullptr && question.stack)
    return Problem{ProblemCode::not_one_of, "stack", stack_name(*question.stack), "hf|megatron", ""};
  if (row == nullptr) row = &kSearched[0];
  Result<Plans> found = row->find(config, recipe, question);
  if (!found.ok()) return found.problem();
  found.value().stack = row->stack;
  found.value().bounds = row->bounds;
  return found;
}

namespace {

// The quickest plan on the fewest of 1, 2, 4 and so on up to `most` cards that have one. From below: where nothing fits
// is soon seen, what fits is traced to its end. `problem`: why nothing could be tried.
Result<std::optional<Plan>> plan_on_fewest(const ModelConfig& config, const Recipe& recipe, PlanQuestion question,
                                           std::uint64_t most, SharedSearch& shared, std::optional<Problem>& problem) {
  question.wanted = 1;
  for (question.gpus = 1; question.gpus <= most; question.gpus *= 2) {
    const Result<bool> some = has_data_parallel_plans(config, recipe, question, shared);
    if (!some.ok()) return some.problem();
    if (!some.value()) continue;
    Result<Plans> found = find_data_parallel_plans(config, recipe, question, shared);
    if (!found.ok()) return found.problem();
    if (!found.value().plans.empty()) return std::optional(std::move(found.value().plans.front()));
  }
  question.gpus = 1;  // for the reason
  const Result<Plans> found = find_data_parallel_plans(config, recipe, question, shared);
  if (!found.ok()) return found.problem();
  const Plans& none = found.value();
  if (none.valid == 0 && !none.left_out.empty()) problem = none.left_out.front().problem;
  return std::optional<Plan>();
}

}  // namespace

Result<Cards> find_cards(const ModelConfig& config, const Recipe& recipe, const PlanQuestion& question) {
  if (const auto problem = problem_of(recipe, question)) return *problem;
  Cards cards;
  for (cards.most = 1; cards.most * 2 <= std::min(question.global_batch, kMostCards);)
    cards.most *= 2;
  for (const Method method : {Method::full, Method::lora, Method::qlora}) {
    CardsOf& row = cards.methods.emplace_back();
    row.method = method;
    const Recipe changed = with_method(recipe, method);
    SharedSearch shared;
    PlanQuestion asked{.global_batch = question.global_batch, .keep = PlanQuestion::Keep::on_gpu};
    const Result<std::optional<Plan>> plan = plan_on_fewest(config, changed, asked, cards.most, shared, row.problem);
    if (!plan.ok()) return plan.problem();
    row.plan = plan.value();
    if (row.plan) {
      row.gpus = row.plan->recipe.dp;
      row.problem.reset();
    }
    const std::uint64_t fewer = row.plan ? row.gpus / 2 : cards.most;
    if (fewer == 0) continue;
    asked.keep = PlanQuestion::Keep::on_host;
    std::optional<Problem> ignored;
    const Result<std::optional<Plan>> offloaded = plan_on_fewest(config, changed, asked, fewer, shared, ignored);
    if (!offloaded.ok()) return offloaded.problem();
    row.offloaded = offloaded.value();
  }
  return cards;
}

namespace {

void write_machine(JsonWriter& out, const Links& links, const Bounds& bounds) {
  out.key("machine").begin_object();
  out.member("gpus", links.gpus).member("within_gb_per_s", links.within_gb_per_s);
  out.member("between_gb_per_s", links.between_gb_per_s).end_object();
  out.key("measured_over_computed").begin_array().value(bounds.fastest).value(bounds.slowest).end_array();
}

void write_plan(JsonWriter& out, const Plan& plan) {
  out.begin_object().key("time");
  write_step_time(out, plan.time);
  out.member("allocated_bytes", plan.allocated_bytes).member("host_bytes", plan.host_bytes).key("recipe");
  write_recipe(out, plan.recipe);
  out.end_object();
}

void write_optional_plan(JsonWriter& out, const char* key, const std::optional<Plan>& plan) {
  out.key(key);
  if (plan) {
    write_plan(out, *plan);
  } else {
    out.null();
  }
}

}  // namespace

std::string write_plans(const Plans& found, const PlanQuestion& question, const Links& links) {
  JsonWriter out;
  out.begin_object().member("about", "plans").member("stack", stack_name(found.stack));
  out.member("gpus", question.gpus).member("global_batch", question.global_batch);
  write_machine(out, links, found.bounds);
  out.member("valid", found.valid).member("traced", found.traced).member("complete", found.complete);
  out.key("plans").begin_array();
  for (const Plan& plan : found.plans)
    write_plan(out, plan);
  out.end_array().key("left_out").begin_array();
  for (const LeftOut& one : found.left_out) {
    out.begin_object().key("problem");
    write_problem(out, one.problem);
    out.member("combinations", one.combinations).end_object();
  }
  out.end_array().end_object();
  return out.take();
}

std::string write_cards(const Cards& cards, const PlanQuestion& question, const Links& links) {
  JsonWriter out;
  out.begin_object().member("about", "cards").member("global_batch", question.global_batch).member("most", cards.most);
  write_machine(out, links, search_of(Stack::hf)->bounds);
  out.key("methods").begin_array();
  for (const CardsOf& row : cards.methods) {
    Recipe named;
    named.method = row.method;
    out.begin_object().member("method", recipe_value(named, "method")).key("gpus");
    row.gpus != 0 ? out.value(row.gpus) : out.null();
    write_optional_plan(out, "plan", row.plan);
    write_optional_plan(out, "offloaded", row.offloaded);
    out.key("problem");
    if (row.problem) {
      write_problem(out, *row.problem);
    } else {
      out.null();
    }
    out.end_object();
  }
  out.end_array().end_object();
  return out.take();
}

}  // namespace ledger
