// megatron_runs.h - models and recipes of the tests of the stack `megatron`, and what their stages come to.
#pragma once

#include <gtest/gtest.h>

#include "core/memory/replay.h"
#include "core/training/megatron_step.h"
#include "tests/training/runs.h"

namespace ledger {

// Megatron's GPT: LayerNorm, biases, GELU, learned positions, dropout everywhere.
inline ModelConfig gpt(std::uint64_t h, std::uint64_t layers, std::uint64_t heads, std::uint64_t positions) {
  ModelConfig c;
  c.architecture = Architecture::llama;
  c.model_type = "gpt2";
  c.style.norm = NormKind::layer;
  c.style.feed = Feed::plain;
  c.style.position = Position::learned;
  c.style.projections = Projections::conv;
  c.act = Act::gelu;
  c.attention_bias = c.mlp_bias = true;
  c.hidden_size = h;
  c.num_hidden_layers = layers;
  c.num_attention_heads = c.num_key_value_heads = heads;
  c.head_dim = h / heads;
  c.intermediate_size = 4 * h;
  c.vocab_size = 51200;
  c.max_position_embeddings = positions;
  c.embedding_dropout = c.residual_dropout = c.attention_dropout = 0.1;
  c.tie_word_embeddings = true;
  return c;
}

inline Recipe megatron(std::uint64_t batch, std::uint64_t seq) {
  Recipe r;
  r.stack = Stack::megatron;
  r.precision = Precision::megatron_bf16;
  r.batch = batch;
  r.seq = seq;
  return r;
}

inline Replay played(const ModelConfig& config, const Recipe& recipe, std::uint64_t stage = 0,
                     const MegatronRun& run = {}) {
  const Result<Trace> trace = trace_megatron(config, recipe, stage, run);
  EXPECT_TRUE(trace.ok()) << (trace.ok() ? "" : trace.problem().where + ": " + trace.problem().expected);
  return trace.ok() ? replay(trace.value(), {}) : Replay{};
}

// What the forward pass of one more layer leaves behind.
inline Bytes activations_of_a_layer(const ModelConfig& two_layers, const Recipe& recipe) {
  ModelConfig four = two_layers;
  four.num_hidden_layers = 4;
  const auto kept = [&](const ModelConfig& config) {
    const Replay r = played(config, recipe);
    return r.phases[1].end_bytes - r.phases[0].end_bytes;
  };
  return (kept(four) - kept(two_layers)) / 2;
}

}  // namespace ledger
