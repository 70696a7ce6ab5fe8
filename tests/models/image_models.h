// image_models.h - what tests of models with images ask of a trace.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "core/answer/prediction.h"
#include "tests/base/show_problem.h"
#include "tests/training/runs.h"

namespace ledger::image_models {

inline ModelConfig config_of(const char* text) {
  const Result<ModelConfig> config = read_model_config(text);
  EXPECT_EQ(outcome(config), "ok");
  return config.ok() ? config.value() : ModelConfig();
}

inline Trace traced(const char* text, const Settings& settings) {
  Settings all{{"batch", "2"}, {"seq", "24"}};
  all.insert(all.end(), settings.begin(), settings.end());
  Result<Trace> trace = trace_step(config_of(text), recipe_of(all));
  EXPECT_EQ(outcome(trace), "ok");
  return trace.ok() ? std::move(trace.value()) : Trace();
}

// Bytes alive at the end of a phase, of scopes that begin with `scope` and of a category.
inline Bytes alive(const Trace& trace, const std::string& phase, const std::string& scope, Category category) {
  const auto found = std::find(trace.phases.begin(), trace.phases.end(), phase);
  EXPECT_NE(found, trace.phases.end()) << phase;
  const auto next = static_cast<std::uint32_t>(found - trace.phases.begin()) + 1;
  std::uint32_t event = 0;
  while (event < trace.events.size() &&
         !(trace.events[event].type == EventType::mark && trace.events[event].id == next))
    ++event;
  Bytes sum = 0;
  for (const LedgerLine& line : ledger_at(trace, event - 1).lines) {
    if (line.category == category && trace.names[line.scope].starts_with(scope)) sum += line.bytes;
  }
  return sum;
}

// Trained parameters whose names have `part` in them: two of every adapter.
inline std::ptrdiff_t adapted(const Trace& trace, const std::string& part) {
  return std::count_if(trace.parameters.begin(), trace.parameters.end(),
                       [&](const Parameter& p) { return p.trainable && p.name.find(part) != std::string::npos; });
}

// What becomes of a recipe.
inline std::string said(const char* text, const Settings& settings) {
  return outcome(trace_step(config_of(text), recipe_of(settings)));
}

// `text` with one place changed.
inline std::string changed(std::string text, const std::string& from, const std::string& to) {
  text.replace(text.find(from), from.size(), to);
  return text;
}

}  // namespace ledger::image_models
