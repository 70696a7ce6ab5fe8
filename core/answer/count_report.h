// count_report.h - what is left to say when a step cannot be predicted: which model it is, its parameters, and why not.
#pragma once

#include <string>

#include "core/base/json.h"
#include "core/base/problem.h"
#include "core/config/model_config.h"

namespace ledger {

void write_problem(JsonWriter& out, const Problem& problem);  // the object alone
void write_counted_model(JsonWriter& out,
                         const ModelConfig& config);  // "model": {family, params, dims}, "notes": [...]

// The document: schema_version, kind "counted", tool, model, notes, problem.
std::string write_count_report(const ModelConfig& config, const Problem& problem);

}  // namespace ledger
