#include "core/answer/count_report.h"

#include "core/answer/report.h"
#include "core/api.h"

namespace ledger {

void write_problem(JsonWriter& out, const Problem& problem) {
  out.begin_object().member("code", problem_id(problem.code)).member("where", problem.where);
  out.member("read", problem.read).member("expected", problem.expected).member("nearest", problem.nearest).end_object();
}

void write_counted_model(JsonWriter& out, const ModelConfig& config) {
  out.key("model").begin_object().member("family", config.model_type).member("params", parameter_count(config));
  write_dims(out, config);
  out.end_object().key("notes").begin_array();
  for (const auto& [id, detail] : config.notes)
    out.begin_object().member("id", id).member("detail", detail).end_object();
  out.end_array();
}

std::string write_count_report(const ModelConfig& config, const Problem& problem) {
  JsonWriter out;
  out.begin_object().member("schema_version", kSchemaVersion).member("kind", "counted");
  out.key("tool").begin_object().member("name", "memory-ledger").member("version", version()).end_object();
  write_counted_model(out, config);
  out.key("problem");
  write_problem(out, problem);
  out.end_object();
  return out.take();
}

}  // namespace ledger
