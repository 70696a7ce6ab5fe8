#include "probe/explain.h"

#include <cmath>
#include <map>
#include <tuple>

#include "core/answer/report.h"
#include "probe/oom_texts.h"
#include "probe/table.h"

namespace ledger {
namespace {

using oom::Field;

// Every kind of tensor of the run's trace, as a report lists those alive at the peak: {"name","category",...} lines.
std::string trace_tensors(const Trace& trace) {
  std::map<std::tuple<NameId, OpKind, DType, Bytes, Category>, std::uint64_t> kinds;
  for (const StorageInfo& storage : trace.storages) {
    if (storage.bytes != 0) ++kinds[{storage.scope, storage.op, storage.dtype, storage.bytes, storage.category}];
  }
  JsonWriter out;
  out.begin_array();
  for (const auto& [kind, count] : kinds) {
    const auto& [scope, op, dtype, bytes, category] = kind;
    out.begin_object().member("name", trace.names[scope]).member("op", op_name(op));
    out.member("category", category_name(category)).member("dtype", info(dtype).name);
    out.member("element_bytes", element_bytes(dtype)).member("count", count).member("bytes", times(bytes, count));
    out.end_object();
  }
  return out.end_array().take();
}

Result<Json> full_report(const Prediction& prediction) {
  std::string report = write_report(prediction, 1);
  report.pop_back();
  constexpr JsonLimits kLimits{.bytes = 512u << 20, .depth = 64, .values = 1u << 26};
  return parse_json(report + ",\"tensors\":" + trace_tensors(prediction.trace) + "}", kLimits);
}

// What one change of recipe saves at the peak; nothing where it is not modelled, changes nothing or costs more.
std::optional<Bytes> saving(const Prediction& prediction, const oom::Advice& advice) {
  if (*advice.key == '\0' || recipe_value(prediction.recipe, advice.key) == advice.value) return std::nullopt;
  const Result<Recipe> recipe = with_recipe_text(prediction.recipe, advice.key, advice.value);
  if (!recipe.ok()) return std::nullopt;
  const Result<Prediction> changed = predict_run(prediction.config, recipe.value());
  if (!changed.ok()) return std::nullopt;
  const Bytes before = prediction.replay.peak_allocated_bytes, after = changed.value().replay.peak_allocated_bytes;
  return after < before ? std::optional(before - after) : std::nullopt;
}

// Log lines are not ours: control characters in them must not reach the terminal.
std::string printable(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  }
  return text;
}

struct FieldText {
  Field field;
  const char* text;
};
constexpr FieldText kFieldTexts[] = {
    {Field::requested, "requested"},
    {Field::capacity, "capacity"},
    {Field::allocated, "allocated"},
    {Field::reserved, "reserved by PyTorch"},
    {Field::unallocated, "of it unallocated"},
    {Field::free, "free on the card"},
    {Field::this_process, "this process"},
    {Field::private_pools, "in private pools"},
    {Field::allowed, "allowed"},
};

std::string padded(std::string text, std::size_t width) {
  if (text.size() < width) text.append(width - text.size(), ' ');
  return text;
}

void append_message(std::string& out, const oom::Message& message) {
  out += std::string("Message: ") + message.format;
  if (*message.device != '\0') out += std::string(", ") + message.device;
  if (message.gpu) out += ", GPU " + std::to_string(*message.gpu);
  out += "\n";
  for (const FieldText& row : kFieldTexts) {
    if (message[row.field]) out += "  " + padded(row.text, 22) + human_bytes(*message[row.field]) + "\n";
  }
  for (const oom::ProcessUse& process : message.processes) {
    const std::string size = process.bytes ? human_bytes(*process.bytes) : "unknown";
    out += "  " + padded("process " + std::to_string(process.pid), 22) + size + "\n";
  }
}

void append_evidence(std::string& out, const oom::Diagnosis& diagnosis) {
  if (!diagnosis.evidence.empty()) out += "\nWhy\n";
  for (const oom::Evidence& evidence : diagnosis.evidence) {
    out += "  - " + evidence_text(evidence.id);
    if (evidence.bytes != 0) out += " (" + human_bytes(evidence.bytes) + ")";
    if (!evidence.quote.empty()) out += "\n      | " + printable(evidence.quote);
    out += "\n";
  }
}

void append_advice(std::string& out, const oom::Explanation& e) {
  if (!e.advice.empty()) out += "\nWhat to do, in this order\n";
  std::size_t number = 0;
  for (const oom::Advice& advice : e.advice) {
    out += "  " + std::to_string(++number) + ". " + advice_text(advice.id);
    if (advice.saves_bytes) out += " Saves " + human_bytes(*advice.saves_bytes) + ".";
    out += "\n";
  }
}

std::string match_text(const oom::TensorMatch& match) {
  const std::string width = std::to_string(match.element_bytes) + " bytes an element";
  if (match.category.empty()) {
    const std::string share = match.divided_by == 1 ? "" : " / " + std::to_string(match.divided_by) + " ranks";
    return std::string(match.name == "params" ? "all" : "all trainable") + " parameters at " + width + share;
  }
  std::string text =
      (match.name.empty() ? match.op : match.name + " (" + match.op + ")") + ", " + match.category + ", ";
  return text + (match.other_dtype ? width + " instead of " + match.dtype : match.dtype) + ", " +
         human_bytes(match.bytes);
}

void append_prediction(std::string& out, const oom::AgainstReport& against) {
  out += "\nBeside the prediction for this model and recipe\n";
  out += "  predicted peak: " + human_bytes(against.predicted_allocated_bytes) + " allocated, up to " +
         human_bytes(against.predicted_device_bytes) + " on the device\n";
  if (!against.phase.empty()) out += "  the step had come to: " + against.phase + "\n";
  if (against.request_says_nothing) out += "  the requested size is what every small tensor is printed as\n";
  for (const oom::TensorMatch& match : against.matches)
    out += "  the request fits: " + match_text(match) + "\n";
  for (const char* id : against.conclusions)
    out += "  => " + conclusion_text(id) + "\n";
}

}  // namespace

oom::Explanation explain_text(std::string_view text, const Prediction* prediction) {
  if (prediction == nullptr) return oom::explain(text);
  const Result<Json> report = full_report(*prediction);
  oom::Explanation explanation = oom::explain(text, report.ok() ? &report.value() : nullptr);
  for (oom::Advice& advice : explanation.advice) {
    if (const auto saved = saving(*prediction, advice)) advice.saves_bytes = saved;
  }
  return explanation;
}

std::string explanation_text(const oom::Explanation& e) {
  const oom::Diagnosis& d = e.diagnosis;
  std::string out;
  if (e.read_bytes < e.text_bytes) out += "(only the last " + human_bytes(e.read_bytes) + " were read)\n";
  out += "Stage: " + std::string(oom::stage_name(d.stage)) + "\n";
  const int percent = static_cast<int>(std::lround(d.confidence * 100));
  out += "Cause: " + cause_text(d.cause) + " (confidence " + std::to_string(percent) + " %)\n";
  for (const oom::Cause cause : d.also_possible)
    out += "       also possible: " + cause_text(cause) + "\n";
  if (e.messages.empty()) out += "\nNo message with numbers was recognised; the answer rests on frames and words.\n";
  for (const oom::Message& message : e.messages) {
    out += "\n";
    append_message(out, message);
  }
  append_evidence(out, d);
  append_advice(out, e);
  if (e.prediction) append_prediction(out, *e.prediction);
  for (const oom::RecipeHint& hint : e.recipe)
    out +=
        (&hint == &e.recipe.front() ? "\nThe text says of the run: " : ", ") + std::string(hint.key) + " " + hint.value;
  return out + (e.recipe.empty() ? "" : "\n");
}

}  // namespace ledger
