// explain.h - an error text explained: facts, stage, cause, evidence and advice; beside a prediction, what that says
// too.
#pragma once

#include <string>
#include <string_view>

#include "core/base/json.h"
#include "core/oom/advice.h"
#include "core/oom/against_report.h"
#include "core/oom/recipe_hints.h"

namespace ledger::oom {

struct Explanation {
  std::vector<Message> messages;
  Diagnosis diagnosis;
  std::vector<Advice> advice;
  std::vector<RecipeHint> recipe;           // what the text says of the run
  std::optional<AgainstReport> prediction;  // with a report at hand
  Bytes text_bytes = 0, read_bytes = 0;     // longer texts are read from their end
};

// `report`: a document of kind "predicted" for the run in question, or nullptr.
Explanation explain(std::string_view text, const Json* report = nullptr);

// The document of kind "oom" (docs/file-formats.md).
std::string write_explanation(const Explanation& explanation);

}  // namespace ledger::oom
