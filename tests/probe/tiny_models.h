// tiny_models.h - models small enough to train in a test, and a way to trace them.
#pragma once

#include <gtest/gtest.h>

#include <utility>

#include "core/training/step.h"

namespace ledger::tiny {

inline constexpr const char* kLlama = R"({"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 2,
  "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 64, "vocab_size": 64})";
inline constexpr const char* kTied = R"({"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 2,
  "num_attention_heads": 4, "num_key_value_heads": 1, "intermediate_size": 64, "vocab_size": 64,
  "tie_word_embeddings": true})";
inline constexpr const char* kUngrouped = R"({"model_type": "mistral", "hidden_size": 32, "num_hidden_layers": 2,
  "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 64, "vocab_size": 64})";
inline constexpr const char* kQwen2 = R"({"model_type": "qwen2", "hidden_size": 32, "num_hidden_layers": 2,
  "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 64, "vocab_size": 64})";
inline constexpr const char* kQwen3 = R"({"model_type": "qwen3", "hidden_size": 32, "num_hidden_layers": 2,
  "head_dim": 8, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 64, "vocab_size": 64})";
// For adapters: what is frozen stays random, and an output layer of weights in [-0.08, 0.08) cannot make logits larger
// than hidden_size x 0.08 / sqrt(3) = 5.9. With 64 tokens that leaves a loss of some ln(1 + 70 / e^5.9) = 0.17.
inline constexpr const char* kWide = R"({"model_type": "llama", "hidden_size": 128, "num_hidden_layers": 2,
  "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 64})";

struct Options {
  std::uint32_t steps = 2;
  double lr = 1e-2;
  bool operands = true;
};

inline Trace trace(const char* config_json, const Recipe& recipe, const Options& options) {
  const Result<ModelConfig> config = read_model_config(config_json);
  EXPECT_TRUE(config.ok());
  TraceOptions trace_options;
  trace_options.steps = options.steps;
  trace_options.operands = options.operands;
  trace_options.adamw.lr = options.lr;
  Result<Trace> result = trace_step(config.value(), recipe, trace_options);
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.problem().where + ": " + result.problem().expected);
  return result.ok() ? std::move(result.value()) : Trace();
}

}  // namespace ledger::tiny
