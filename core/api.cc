#include "core/api.h"

#include "core/answer/advice.h"
#include "core/answer/comparison.h"
#include "core/answer/count_report.h"
#include "core/answer/plans.h"
#include "core/answer/prediction.h"
#include "core/answer/report.h"
#include "core/base/json.h"

namespace ledger {
namespace {

constexpr std::uint64_t kMostPoints = 20000;

// The answer is JSON text made elsewhere, wrapped without parsing it again.
std::string wrap(const char* name, const std::string& json) {
  std::string out;
  out.reserve(json.size() + 32);
  out.append("{\"").append(name).append("\":").append(json).append("}");
  return out;
}

std::string answer(const Problem& problem) {
  JsonWriter out;
  out.begin_object().key("problem");
  write_problem(out, problem);
  out.end_object();
  return out.take();
}

// A step that cannot be predicted still has a model that was read.
std::string answer(const Problem& problem, const ModelConfig& config) {
  JsonWriter out;
  out.begin_object().key("problem");
  write_problem(out, problem);
  write_counted_model(out, config);
  out.end_object();
  return out.take();
}

// A member given as an object, or as the text of a document (positions in its problems then refer to that text).
Result<Json> document(const Json& request, const char* key) {
  const Json* found = request.find(key);
  if (found == nullptr || found->is_null()) return Problem{ProblemCode::missing_key, key, "", "object", ""};
  if (const auto text = found->as_string()) return parse_json(*text);
  return *found;
}

Result<ModelConfig> config_of(const Json& request) {
  const Json* found = request.find("config");
  if (const auto text = found == nullptr ? std::nullopt : found->as_string()) return read_model_config(*text);
  Result<Json> config = document(request, "config");
  if (!config.ok()) return config.problem();
  return model_config_from(config.value());
}

Result<Recipe> recipe_of(const Json& request) {
  const Json* found = request.find("recipe");
  if (found == nullptr || found->is_null()) return Recipe{};
  if (const auto text = found->as_string()) return read_recipe(*text);
  return recipe_from(*found);
}

struct Asked {
  Json request;
  ModelConfig config;
  Recipe recipe;
};

Result<Asked> read_request(std::string_view text) {
  Result<Json> request = parse_json(text, {.bytes = 32u << 20, .depth = 64});
  if (!request.ok()) return request.problem();
  Result<ModelConfig> config = config_of(request.value());
  if (!config.ok()) return config.problem();
  Result<Recipe> recipe = recipe_of(request.value());
  if (!recipe.ok()) return recipe.problem();
  return Asked{std::move(request.value()), std::move(config.value()), std::move(recipe.value())};
}

// A number of the question; `fallback` where it is absent.
Result<std::uint64_t> number_of(const Json& request, const char* key, std::uint64_t fallback) {
  const Json* found = request.find(key);
  if (found == nullptr || found->is_null()) return fallback;
  const auto number = found->as_unsigned();
  if (!number) return Problem{ProblemCode::wrong_type, key, found->brief(), "integer", ""};
  return *number;
}

Result<PlanQuestion> question_of(const Json& request) {
  PlanQuestion question;
  const Result<std::uint64_t> gpus = number_of(request, "gpus", question.gpus);
  if (!gpus.ok()) return gpus.problem();
  const Result<std::uint64_t> batch = number_of(request, "global_batch", question.global_batch);
  if (!batch.ok()) return batch.problem();
  question.gpus = gpus.value();
  question.global_batch = batch.value();
  if (const Json* stack = request.find("stack"); stack != nullptr && !stack->is_null()) {
    const Result<Recipe> named = with_recipe_text(Recipe{}, "stack", stack->as_string().value_or(stack->brief()));
    if (!named.ok()) return named.problem();
    question.stack = named.value().stack;
  }
  return question;
}

std::string answer_plans(const Json& request, const ModelConfig& config, const Recipe& recipe, bool cards) {
  const Result<PlanQuestion> question = question_of(request);
  if (!question.ok()) return answer(question.problem());
  const auto links = links_of(*find_gpu(recipe.gpu));
  if (cards) {
    const Result<Cards> found = find_cards(config, recipe, question.value());
    return found.ok() ? wrap("advice", write_cards(found.value(), question.value(), *links)) : answer(found.problem());
  }
  const Result<Plans> found = find_plans(config, recipe, question.value());
  return found.ok() ? wrap("advice", write_plans(found.value(), question.value(), *links)) : answer(found.problem());
}

}  // namespace

const char* version() {
  return LEDGER_VERSION;
}

std::string predict(std::string_view text) {
  const Result<Asked> asked = read_request(text);
  if (!asked.ok()) return answer(asked.problem());
  const auto& [request, config, recipe] = asked.value();
  const Json* points = request.find("timeline_points");
  const std::uint64_t count = points == nullptr ? kTimelinePoints : points->as_unsigned().value_or(kTimelinePoints);
  Result<Prediction> prediction = predict_run(config, recipe);
  if (!prediction.ok()) return answer(prediction.problem(), config);
  return wrap("report",
              write_report(prediction.value(), static_cast<std::size_t>(count < kMostPoints ? count : kMostPoints)));
}

std::string advise(std::string_view text) {
  const Result<Asked> asked = read_request(text);
  if (!asked.ok()) return answer(asked.problem());
  const auto& [request, config, recipe] = asked.value();
  const Json* found = request.find("about");
  const std::string_view about = found == nullptr ? "changes" : found->as_string().value_or("");
  if (about == "changes") {
    const Result<Advice> advice = advise(config, recipe);
    return advice.ok() ? wrap("advice", write_advice(advice.value())) : answer(advice.problem());
  }
  constexpr std::string_view kUnknowns[] = {"batch", "seq", "gpu"};
  for (std::size_t i = 0; i < 3; ++i) {
    if (about != kUnknowns[i]) continue;
    const auto unknown = static_cast<Unknown>(i);
    const Result<Solution> solution = solve(config, recipe, unknown);
    return solution.ok() ? wrap("advice", write_solution(solution.value(), unknown)) : answer(solution.problem());
  }
  if (about == "plans" || about == "cards") return answer_plans(request, config, recipe, about == "cards");
  return answer({ProblemCode::not_one_of, "about", found->brief(), "changes|batch|seq|gpu|plans|cards", ""});
}

std::string compare(std::string_view text) {
  Result<Json> request = parse_json(text, {.bytes = 64u << 20, .depth = 64});
  if (!request.ok()) return answer(request.problem());
  Result<Json> measured = document(request.value(), "measured");
  if (!measured.ok()) return answer(measured.problem());
  Result<std::string> comparison = compare_measured(measured.value());
  if (!comparison.ok()) return answer(comparison.problem());
  return wrap("comparison", comparison.value());
}

std::string catalogue() {
  JsonWriter out;
  out.begin_object().member("version", version()).key("gpus").begin_array();
  for (const Gpu& gpu : gpus()) {
    out.begin_object().member("id", gpu.id).member("name", gpu.name).member("label_bytes", gpu.label_bytes);
    out.member("usable_bytes", gpu.usable_bytes).member("compute_capability", gpu.compute_capability);
    out.member("context_low_bytes", gpu.context_low_bytes).member("context_high_bytes", gpu.context_high_bytes);
    out.member("dense_bf16_tflops", gpu.dense_bf16_tflops).member("bandwidth_gb_per_s", gpu.bandwidth_gb_per_s);
    out.member("source", gpu.source).end_object();
  }
  out.end_array().key("recipe_keys").begin_array();
  constexpr const char* kKinds[] = {"choice", "flag", "integer", "real", "names", "text"};
  for (const RecipeKey& key : recipe_keys()) {
    out.begin_object().member("name", key.name).member("kind", kKinds[static_cast<std::size_t>(key.kind)]);
    out.member("default", recipe_value(Recipe{}, key.name)).key("choices").begin_array();
    for (const char* choice : key.choices)
      out.value(choice);
    out.end_array().member("low", key.low).member("high", key.high).end_object();
  }
  out.end_array().end_object();
  return out.take();
}

}  // namespace ledger
