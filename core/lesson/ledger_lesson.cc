#include <string>

#include "core/config/model_config.h"
#include "core/config/recipe.h"
#include "core/lesson/lesson.h"
#include "core/lesson/rules.h"
#include "core/training/course.h"

namespace ledger {
namespace {

constexpr std::uint64_t kMostWays = 1u << 20;

struct Asked {
  ModelConfig config;
  Recipe recipe;
  std::uint64_t params;  // of the model, or as the reader rounds them
};

Result<Asked> asked(const Json& request) {
  const Json* config = request.find("config");
  if (config == nullptr) return Problem{ProblemCode::missing_key, "config", "", "object", ""};
  const auto text = config->as_string();
  Result<ModelConfig> model = text ? read_model_config(*text) : model_config_from(*config);
  if (!model.ok()) return model.problem();
  if (model.value().architecture == Architecture::plain) {
    return Problem{ProblemCode::unsupported_recipe, "stack", "course", "course_needs_a_decoder", ""};
  }
  const Json* keys = request.find("recipe");
  Result<Recipe> recipe = keys == nullptr ? Result<Recipe>(Recipe{}) : recipe_from(*keys);
  if (!recipe.ok()) return recipe.problem();
  const Json* rounded = request.find("params");
  const std::uint64_t params = rounded == nullptr ? parameter_count(model.value()) : rounded->as_unsigned().value_or(0);
  if (params == 0)
    return Problem{ProblemCode::out_of_range, "params", rounded == nullptr ? "" : rounded->brief(), "1..", ""};
  return Asked{std::move(model.value()), std::move(recipe.value()), params};
}

void write_per_parameter(JsonWriter& out, const CourseBytes& bytes) {
  out.key("per_parameter").begin_object().member("weights", bytes.weights).member("gradients", bytes.gradients);
  out.member("master_weights", bytes.master_weights).member("optimizer_states", bytes.optimizer_states);
  out.member("moments", bytes.moments)
      .member("resident", bytes.resident())
      .member("transient_copy", bytes.transient_copy)
      .end_object();
}

void write_inference(JsonWriter& out, Recipe recipe, std::uint64_t params) {
  out.key("inference").begin_object();
  constexpr std::pair<const char*, Weights> kWeights[] = {
      {"bf16", Weights::unquantised}, {"int8", Weights::int8}, {"int4", Weights::nf4}};
  for (const auto& [name, weights] : kWeights) {
    recipe.weights = weights;
    out.member(name, course_inference_bytes(recipe, params));
  }
  out.end_object();
}

void write_activations(JsonWriter& out, const ModelConfig& config, Recipe recipe) {
  recipe.checkpointing = Checkpointing::full;
  const Bytes inputs = course_activations(config, recipe);
  recipe.checkpointing = Checkpointing::none;
  out.key("activations").begin_object().member("layer_inputs", inputs);
  out.member("all", course_activations(config, recipe)).member("scores", course_scores(config, recipe)).end_object();
}

void write_compute(JsonWriter& out, const ModelConfig& config, const Recipe& recipe) {
  const std::uint64_t forward = course_forward_flops(config, recipe), backward = times(2, forward);
  const std::uint64_t again = recipe.checkpointing == Checkpointing::none ? 0 : forward;
  out.key("compute").begin_object().member("forward", forward).member("backward", backward);
  out.member("recompute", again).member("total", plus(plus(forward, backward), again)).end_object();
}

// What one of recipe.dp GPUs holds beside its activations, and what it sends in a step.
void write_ranks(JsonWriter& out, const ModelConfig& config, const Recipe& recipe, Bytes states, Bytes gradients) {
  const std::uint64_t layers = config.num_hidden_layers;
  out.key("ranks").begin_object().member("gpus", recipe.dp).key("ddp").begin_object().member("bytes", states);
  out.member("all_reduce_bytes", gradients).end_object();
  out.key("fsdp").begin_object().member("bytes", divide_up(states, recipe.dp)).member("forward_gathers", layers);
  out.member("backward_gathers", recipe.reshard_after_forward ? layers : 0).member("reduce_scatters", layers);
  out.member("layer_bytes", layers == 0 ? 0 : times(2, layer_parameters(config) / layers)).end_object().end_object();
}

// The share of the parameters that is trained, where the reader assumes one: trained_per_mille of `params`.
Result<std::uint64_t> trained(const Json& request, const Asked& a) {
  if (const Json* share = request.find("trained_per_mille")) {
    const auto value = share->as_unsigned();
    if (!value || *value > 1000)
      return Problem{ProblemCode::out_of_range, "trained_per_mille", share->brief(), "0..1000", ""};
    return times(a.params, *value) / 1000;
  }
  return a.recipe.method == Method::full ? a.params : course_adapter_parameters(a.config, a.recipe);
}

}  // namespace

Result<std::string> ledger_lesson(const Json& request) {
  const Result<Asked> read = asked(request);
  if (!read.ok()) return read.problem();
  const auto& [config, recipe, params] = read.value();
  const Result<std::uint64_t> trainable = trained(request, read.value());
  if (!trainable.ok()) return trainable.problem();
  const CourseBytes bytes = course_bytes(recipe);
  const Bytes frozen = course_frozen_bytes(recipe, params), adapted = times(trainable.value(), bytes.resident());
  JsonWriter out;
  out.begin_object().member("params", params).member("trainable", trainable.value());
  write_per_parameter(out, bytes);
  out.member("frozen_bytes", frozen).member("trained_bytes", adapted).member("states_bytes", plus(frozen, adapted));
  write_inference(out, recipe, params);
  write_activations(out, config, recipe);
  write_compute(out, config, recipe);
  write_ranks(out, config, recipe, plus(frozen, adapted), times(trainable.value(), bytes.gradients));
  out.end_object();
  return out.take();
}

Result<std::string> cut_lesson(const Json& request) {
  const Result<Asked> read = asked(request);
  if (!read.ok()) return read.problem();
  const auto& [config, recipe, params] = read.value();
  const Json* kind = request.find("kind");
  const Json* number = request.find("ways");
  const std::uint64_t ways = number == nullptr ? 0 : number->as_unsigned().value_or(0);
  if (ways < 1 || ways > kMostWays) {
    return Problem{ProblemCode::out_of_range, "ways", number == nullptr ? "" : number->brief(), "1..1048576", ""};
  }
  constexpr std::pair<std::string_view, decltype(&tensor_cut)> kCuts[] = {
      {"tensor", tensor_cut}, {"pipeline", pipeline_cut}, {"expert", expert_cut}};
  for (const auto& [name, of] : kCuts) {
    if (kind == nullptr || kind->as_string() != name) continue;
    const Cut cut = of(config, recipe, ways);
    JsonWriter out;
    out.begin_object().member("params", params).member("params_per_gpu", cut.params_per_gpu);
    out.member("sends", cut.sends).member("bytes", cut.bytes).end_object();
    return out.take();
  }
  return Problem{ProblemCode::not_one_of, "kind", kind == nullptr ? "" : kind->brief(), "tensor|pipeline|expert", ""};
}

}  // namespace ledger
