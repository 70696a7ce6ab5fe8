#include "core/answer/comparison.h"

#include <algorithm>

#include "core/answer/compared_timeline.h"
#include "core/answer/prediction.h"
#include "core/answer/report.h"

namespace ledger {
namespace {

Problem missing(const char* where, const char* expected) {
  return {ProblemCode::missing_key, where, "", expected, ""};
}

// A document this reader understands: kind "measured", major version 1.
std::optional<Problem> not_measured(const Json& root) {
  if (!root.is_object()) return Problem{ProblemCode::not_an_object, "", type_name(root.type()), "object", ""};
  const Json* kind = root.find("kind");
  if (kind == nullptr) return missing("kind", "\"measured\"");
  const auto text = kind->as_string();
  if (!text || (*text != "measured" && *text != "hook")) {
    return Problem{ProblemCode::not_one_of, "kind", kind->brief(), "measured|hook", ""};
  }
  const Json* version = root.find("schema_version");
  const auto number = version == nullptr ? std::nullopt : version->as_string();
  if (!number || !(number->starts_with("1.") || *number == "1")) {
    return Problem{ProblemCode::schema_version, "schema_version", version == nullptr ? "" : version->brief(), "1.x",
                   ""};
  }
  return std::nullopt;
}

Result<Bytes> bytes_at(const Json& object, const char* where, const char* key) {
  const Json* found = object.find(key);
  if (found == nullptr || found->is_null()) return missing(where, "integer");
  const auto bytes = found->as_unsigned();
  if (!bytes) return Problem{ProblemCode::wrong_type, where, found->brief(), "integer", ""};
  return *bytes;
}

// An open row: its writer may add to it.
void begin_row(JsonWriter& out, std::string_view name, Bytes predicted, std::int64_t measured) {
  out.begin_object().member("name", name).member("predicted_bytes", predicted).member("measured_bytes", measured);
  out.member("difference_bytes", measured - static_cast<std::int64_t>(predicted));
}

void write_row(JsonWriter& out, std::string_view name, Bytes predicted, Bytes measured) {
  begin_row(out, name, predicted, static_cast<std::int64_t>(measured));
  out.end_object();
}

constexpr const char* kPeakKeys[] = {"tensor_bytes", "workspace_bytes", "allocated_bytes", "reserved_bytes"};

void write_peak_rows(JsonWriter& out, const Json& peaks, const Replay& replay) {
  const Bytes predicted[] = {replay.peak_tensor_bytes, replay.peak_workspace_bytes, replay.peak_allocated_bytes,
                             replay.peak_reserved_bytes};
  out.key("peaks").begin_array();
  for (std::size_t i = 0; i < std::size(kPeakKeys); ++i) {
    if (const auto measured = peaks.unsigned_at(kPeakKeys[i])) write_row(out, kPeakKeys[i], predicted[i], *measured);
  }
  out.end_array();
}

const PhasePeak* phase_named(const Prediction& p, std::string_view name) {
  const auto found = std::find_if(p.replay.phases.begin(), p.replay.phases.end(),
                                  [&](const PhasePeak& peak) { return p.trace.phases[peak.phase] == name; });
  return found == p.replay.phases.end() ? nullptr : &*found;
}

// A phase's allocated peak in layers, each stated up to its upper edge: tensors, then what comes on top of them.
struct Layer {
  const char* name;
  const char* key;
  Bytes PhasePeak::*upto;
};
constexpr Layer kLayers[] = {
    {"[tensors]", "peak_bytes", &PhasePeak::peak_bytes},
    {"[library workspace]", "peak_with_workspace_bytes", &PhasePeak::peak_with_workspace_bytes},
    {"[allocator rounding]", "allocated_peak_bytes", &PhasePeak::allocated_peak_bytes},
};

// Lines that add up to the phase's row. From the first layer on that the file does not state, its bytes are
// unexplained.
void write_phase_lines(JsonWriter& out, const Json& phase, const PhasePeak& predicted, Bytes measured) {
  Bytes predicted_below = 0, measured_below = 0;
  bool stated = true;
  out.key("lines").begin_array();
  for (const Layer& layer : kLayers) {
    const auto upto = phase.unsigned_at(layer.key);
    stated = stated && upto;
    const std::int64_t part = stated ? static_cast<std::int64_t>(*upto) - static_cast<std::int64_t>(measured_below) : 0;
    begin_row(out, layer.name, predicted.*layer.upto - predicted_below, part);
    out.end_object();
    predicted_below = predicted.*layer.upto;
    if (stated) measured_below = *upto;
  }
  begin_row(out, "[unexplained]", 0, static_cast<std::int64_t>(measured) - static_cast<std::int64_t>(measured_below));
  out.end_object().end_array();
}

void write_phase_rows(JsonWriter& out, const Json* phases, const Prediction& p) {
  out.key("phases").begin_array();
  for (const Json& phase : phases == nullptr ? std::vector<Json>{} : phases->items()) {
    const Json* name = phase.find("name");
    const auto text = name == nullptr ? std::nullopt : name->as_string();
    const auto measured = phase.unsigned_at("allocated_peak_bytes");
    if (!text || !measured) continue;
    if (const PhasePeak* predicted = phase_named(p, *text)) {
      begin_row(out, *text, predicted->allocated_peak_bytes, static_cast<std::int64_t>(*measured));
      write_phase_lines(out, phase, *predicted, *measured);
      out.end_object();
    }
  }
  out.end_array();
}

// Categories, allocator rounding and what neither explains: both columns sum to the allocated bytes at the measured
// peak.
void write_category_rows(JsonWriter& out, const Json& at_peak, const Prediction& p, Bytes measured_allocated) {
  const Json* categories = at_peak.find("categories");
  const auto sample = std::find_if(p.replay.samples.begin(), p.replay.samples.end(),
                                   [&](const Sample& s) { return s.event == p.replay.peak_event; });
  const Bytes allocated = sample == p.replay.samples.end() ? 0 : sample->allocated;
  Bytes measured_sum = 0;
  out.key("categories").begin_array();
  for (std::size_t i = 0; i < kCategories; ++i) {
    const char* name = category_name(static_cast<Category>(i));
    const Bytes measured = categories == nullptr ? 0 : categories->unsigned_at(name).value_or(0);
    if (measured == 0 && p.at_peak.categories[i] == 0) continue;
    write_row(out, name, p.at_peak.categories[i], measured);
    measured_sum = plus(measured_sum, measured);
  }
  const Bytes measured_rounding = at_peak.unsigned_at("allocator_rounding_bytes").value_or(0);
  write_row(out, "[allocator rounding]", allocated - p.at_peak.tensor_bytes - p.at_peak.workspace_bytes,
            measured_rounding);
  const auto rest =
      static_cast<std::int64_t>(measured_allocated) - static_cast<std::int64_t>(plus(measured_sum, measured_rounding));
  begin_row(out, "[unexplained]", 0, rest);
  out.end_object().end_array();
}

// One a rank, where several ran: its allocated peak beside what was predicted for it. A prediction here is of one rank,
// so the file's own stand beside the measurements.
void write_rank_rows(JsonWriter& out, const Json* ranks) {
  if (ranks == nullptr) return;
  out.key("ranks").begin_array();
  for (const Json& row : ranks->items()) {
    const auto rank = row.unsigned_at("rank"), predicted = row.unsigned_at("predicted_allocated_bytes");
    const Json* peaks = row.find("peaks");
    const auto measured = peaks == nullptr ? std::nullopt : peaks->unsigned_at("allocated_bytes");
    if (rank && predicted && measured) write_row(out, std::to_string(*rank), *predicted, *measured);
  }
  out.end_array();
}

Result<Prediction> predict_same_run(const Json& root) {
  const Json* model = root.find("model");
  const Json* config_json = model == nullptr ? nullptr : model->find("config");
  if (config_json == nullptr) return missing("model.config", "object");
  const Json* recipe_json = root.find("recipe");
  if (recipe_json == nullptr) return missing("recipe", "object");
  Result<ModelConfig> config = model_config_from(*config_json);
  if (!config.ok()) return config.problem();
  Result<Recipe> recipe = recipe_from(*recipe_json);
  if (!recipe.ok()) return recipe.problem();
  PredictOptions options;
  const Json* run = root.find("options");
  const Json* steps = run == nullptr ? nullptr : run->find("steps");
  if (const auto count = steps == nullptr ? std::nullopt : steps->as_unsigned()) {
    constexpr std::uint64_t kMostSteps = 64;
    if (*count == 0 || *count > kMostSteps) {
      return Problem{ProblemCode::out_of_range, "options.steps", steps->brief(), "1..64", ""};
    }
    options.steps = static_cast<std::uint32_t>(*count);
  }
  return predict_run(config.value(), recipe.value(), options);
}

void copy_member(JsonWriter& out, const Json& root, const char* key) {
  if (const Json* value = root.find(key)) out.key(key).value(*value);
}

}  // namespace

Result<std::string> compare_measured(const Json& measured) {
  if (auto problem = not_measured(measured)) return *problem;
  const Json* peaks = measured.find("peaks");
  if (peaks == nullptr) return missing("peaks", "object");
  const Json* at_peak = measured.find("at_peak");
  if (at_peak == nullptr) return missing("at_peak", "object");
  Result<Bytes> allocated = bytes_at(*at_peak, "at_peak.allocated_bytes", "allocated_bytes");
  if (!allocated.ok()) return allocated.problem();
  Result<Prediction> prediction = predict_same_run(measured);
  if (!prediction.ok()) return prediction.problem();
  const Prediction& p = prediction.value();
  JsonWriter out;
  out.begin_object().member("schema_version", kSchemaVersion).member("kind", "comparison");
  for (const char* key : {"environment", "tool", "status"})
    copy_member(out, measured, key);
  write_model(out, p);
  out.key("recipe");
  write_recipe(out, p.recipe);
  write_peak_rows(out, *peaks, p.replay);
  write_phase_rows(out, measured.find("phases"), p);
  write_category_rows(out, *at_peak, p, allocated.value());
  write_rank_rows(out, measured.find("ranks"));
  if (auto problem = write_compared_timeline(out, measured.find("timeline"), p)) return *problem;
  copy_member(out, measured, "steps");
  out.key("notes").begin_array().end_array().end_object();
  return out.take();
}

}  // namespace ledger
