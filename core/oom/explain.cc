#include "core/oom/explain.h"

#include <cmath>

#include "core/api.h"
#include "core/oom/numeric.h"

namespace ledger::oom {
namespace {

constexpr Bytes kMostText = 4 * kMiB;  // logs end with the error: of longer ones the end is read

void member(JsonWriter& out, const char* key, const std::optional<Bytes>& bytes) {
  out.key(key);
  if (bytes) {
    out.value(*bytes);
  } else {
    out.null();
  }
}

struct Key {
  const char* name;
  Field field;
};
constexpr Key kKeys[] = {
    {"requested_bytes", Field::requested},
    {"capacity_bytes", Field::capacity},
    {"allocated_bytes", Field::allocated},
    {"reserved_bytes", Field::reserved},
    {"free_bytes", Field::free},
    {"unallocated_bytes", Field::unallocated},
    {"this_process_bytes", Field::this_process},
    {"private_pools_bytes", Field::private_pools},
    {"allowed_bytes", Field::allowed},
};

void write_message(JsonWriter& out, const Message& message) {
  constexpr const char* kMemories[] = {"device", "host", "other"};
  out.begin_object().member("format", message.format);
  out.member("memory", kMemories[static_cast<std::size_t>(message.memory)]);
  out.key("device");
  if (*message.device != '\0') {
    out.value(message.device);
  } else {
    out.null();
  }
  member(out, "gpu", message.gpu);
  for (const Key& key : kKeys)
    member(out, key.name, message[key.field]);
  out.key("processes").begin_array();
  for (const ProcessUse& process : message.processes) {
    out.begin_object().member("pid", process.pid);
    member(out, "bytes", process.bytes);
    out.end_object();
  }
  out.end_array().end_object();
}

void write_evidence(JsonWriter& out, const Diagnosis& diagnosis) {
  out.key("evidence").begin_array();
  for (const Evidence& evidence : diagnosis.evidence) {
    out.begin_object().member("id", evidence.id).member("quote", evidence.quote);
    member(out, "bytes", evidence.bytes == 0 ? std::nullopt : std::optional(evidence.bytes));
    out.end_object();
  }
  out.end_array();
}

void write_advice(JsonWriter& out, const std::vector<Advice>& advice) {
  out.key("advice").begin_array();
  for (const Advice& entry : advice) {
    out.begin_object().member("id", entry.id);
    out.key("recipe").begin_object();
    if (*entry.key != '\0') out.member(entry.key, entry.value);
    out.end_object();
    member(out, "saves_bytes", entry.saves_bytes);
    out.end_object();
  }
  out.end_array();
}

void write_match(JsonWriter& out, const TensorMatch& match) {
  out.begin_object().member("name", match.name).member("category", match.category).member("op", match.op);
  out.member("dtype", match.dtype).member("bytes", match.bytes).member("count", match.count);
  out.member("element_bytes", match.element_bytes).member("other_dtype", match.other_dtype);
  out.member("divided_by", match.divided_by).end_object();
}

void write_prediction(JsonWriter& out, const AgainstReport& against) {
  out.begin_object().member("predicted_allocated_bytes", against.predicted_allocated_bytes);
  out.member("least_device_bytes", against.least_device_bytes);
  out.member("predicted_device_bytes", against.predicted_device_bytes).member("phase", against.phase);
  out.member("request_says_nothing", against.request_says_nothing).key("matches").begin_array();
  for (const TensorMatch& match : against.matches)
    write_match(out, match);
  out.end_array().key("conclusions").begin_array();
  for (const char* id : against.conclusions)
    out.value(id);
  out.end_array().end_object();
}

void write_recipe(JsonWriter& out, const std::vector<RecipeHint>& recipe) {
  out.key("recipe").begin_array();
  for (const RecipeHint& hint : recipe)
    out.begin_object().member("key", hint.key).member("value", hint.value).member("quote", hint.quote).end_object();
  out.end_array();
}

void write_diagnosis(JsonWriter& out, const Diagnosis& d) {
  constexpr double kHundred = 100;
  out.member("stage", stage_name(d.stage)).member("cause", cause_name(d.cause)).key("also_possible").begin_array();
  for (const Cause cause : d.also_possible)
    out.value(cause_name(cause));
  out.end_array();
  const auto percent = static_cast<std::uint64_t>(std::lround(d.confidence * kHundred));
  out.member("confidence", static_cast<double>(percent) / kHundred);
  out.member("fragmentation_is_real", d.fragmentation_is_real);
  member(out, "other_process_bytes", d.other_process_bytes == 0 ? std::nullopt : std::optional(d.other_process_bytes));
}

}  // namespace

Explanation explain(std::string_view text, const Json* report) {
  Explanation e;
  e.text_bytes = text.size();
  if (text.size() > kMostText) {
    text.remove_prefix(text.size() - static_cast<std::size_t>(kMostText));
    while (!text.empty() && (static_cast<unsigned char>(text[0]) & 0xC0) == 0x80)
      text.remove_prefix(1);
  }
  e.read_bytes = text.size();
  const Squashed squashed(text);
  e.messages = read_messages(squashed);
  e.diagnosis = diagnose(squashed, e.messages);
  const Message* message = main_message(e.messages);
  e.advice = advise(e.diagnosis, message);
  e.recipe = recipe_hints(squashed);
  if (report != nullptr && message != nullptr) e.prediction = against_report(*message, e.diagnosis, *report);
  return e;
}

std::string write_explanation(const Explanation& e) {
  JsonWriter out;
  out.begin_object().member("schema_version", "1.0").member("kind", "oom");
  out.member("text_bytes", e.text_bytes).member("read_bytes", e.read_bytes).key("messages").begin_array();
  for (const Message& message : e.messages)
    write_message(out, message);
  out.end_array();
  write_diagnosis(out, e.diagnosis);
  write_evidence(out, e.diagnosis);
  write_advice(out, e.advice);
  write_recipe(out, e.recipe);
  out.key("prediction");
  if (e.prediction) {
    write_prediction(out, *e.prediction);
  } else {
    out.null();
  }
  return out.end_object().take();
}

}  // namespace ledger::oom

namespace ledger {

std::string explain_oom(std::string_view request) {
  constexpr JsonLimits kLimits{.bytes = 32u << 20, .depth = 64};
  Result<Json> parsed = parse_json(request, kLimits);
  const Json* text = parsed.ok() ? parsed.value().find("text") : nullptr;
  const auto words = text == nullptr ? std::nullopt : text->as_string();
  if (!words) {
    const Problem problem =
        parsed.ok() ? Problem{ProblemCode::missing_key, "text", "", "string", ""} : parsed.problem();
    JsonWriter out;
    out.begin_object().key("problem").begin_object().member("code", problem_id(problem.code));
    out.member("where", problem.where).member("read", problem.read).member("expected", problem.expected);
    return out.member("nearest", problem.nearest).end_object().end_object().take();
  }
  const Json* report = parsed.value().find("report");
  const bool usable = report != nullptr && report->is_object();
  return "{\"oom\":" + oom::write_explanation(oom::explain(*words, usable ? report : nullptr)) + "}";
}

}  // namespace ledger
