// tiny_models.h - tiny_configs.h and a way to trace them.
#pragma once

#include <gtest/gtest.h>

#include <utility>

#include "core/training/step.h"
#include "tiny_configs.h"

namespace ledger::tiny {

struct Options {
  std::uint32_t steps = 2;
  double lr = 1e-2;
  bool operands = true;
  std::uint64_t rank = 0;
};

inline Trace trace(const char* config_json, const Recipe& recipe, const Options& options) {
  const Result<ModelConfig> config = read_model_config(config_json);
  EXPECT_TRUE(config.ok());
  TraceOptions trace_options;
  trace_options.steps = options.steps;
  trace_options.operands = options.operands;
  trace_options.adamw.lr = options.lr;
  trace_options.rank = options.rank;
  Result<Trace> result = trace_step(config.value(), recipe, trace_options);
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.problem().where + ": " + result.problem().expected);
  return result.ok() ? std::move(result.value()) : Trace();
}

}  // namespace ledger::tiny
