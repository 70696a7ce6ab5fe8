#include "core/training/titan_pipeline.h"

#include <gtest/gtest.h>

#include <string>

#include "core/answer/sources.h"
#include "core/models/torchtitan.h"
#include "core/parallel/mesh_of.h"

namespace ledger {
namespace {

std::string spelled(const std::vector<PipelineTurn>& turns) {
  std::string text;
  for (const PipelineTurn& turn : turns) {
    if (!text.empty()) text += ' ';
    text += (turn.backward ? 'B' : 'F') + std::to_string(turn.micro_batch);
    if (turn.stage != 0) text += '\'';
  }
  return text;
}

TEST(PipelineTurns, OneForwardOneBackward) {
  EXPECT_EQ(spelled(pipeline_turns(0, 3, 1, 4)), "F0 F1 F2 B0 F3 B1 B2 B3");
  EXPECT_EQ(spelled(pipeline_turns(2, 3, 1, 4)), "F0 B0 F1 B1 F2 B2 F3 B3");
  EXPECT_EQ(spelled(pipeline_turns(0, 4, 1, 2)), "F0 F1 B0 B1");
}

// The timetable that pytorch/pytorch#129597 shows: 4 ranks, 2 stages each, 10 micro-batches in two rounds.
TEST(PipelineTurns, InterleavedInRounds) {
  const std::string first = spelled(pipeline_turns(0, 4, 2, 10)), last = spelled(pipeline_turns(3, 4, 2, 10));
  EXPECT_TRUE(first.starts_with("F0 F1 F2 F3 F4 F0' F1' F2' F3' F4' F5 F6 B0' F7 B1'")) << first;
  EXPECT_TRUE(first.ends_with("B5 B6 B7 B8 B9")) << first;
  EXPECT_TRUE(last.starts_with("F0 F1 F2 F3 F4 F0' B0' F1' B1' F2' B2'")) << last;
}

TEST(PipelineTurns, RoundsAreEqual) {
  EXPECT_TRUE(pipeline_turns(0, 4, 2, 9).empty());
  EXPECT_EQ(pipeline_turns(0, 4, 2, 3).size(), 12u);
}

ModelConfig llama(std::uint64_t layers) {
  ModelConfig config;
  const std::string json =
      R"({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 4,
    "intermediate_size": 96, "vocab_size": 128, "num_hidden_layers": )" +
      std::to_string(layers) + "}";
  Result<ModelConfig> read = read_model_config(json);
  EXPECT_TRUE(read.ok());
  return std::move(read.value());
}

std::vector<std::uint64_t> layers_of(Stack stack, std::uint64_t layers, std::uint64_t stages) {
  std::vector<std::uint64_t> counts;
  std::uint64_t next = 0;
  for (const TitanPart& part : titan_parts(llama(layers), *titan_version(stack), stages)) {
    EXPECT_EQ(part.first, next);
    EXPECT_EQ(part.embedding, counts.empty());
    next += part.layers;
    counts.push_back(part.layers);
  }
  return counts;
}

// What generate_split_points (9dec370) and generate_llm_fqn_per_model_part (v0.2.2) say when they are run.
TEST(TitanParts, AreCutAsTheReleaseCutsThem) {
  using Counts = std::vector<std::uint64_t>;
  EXPECT_EQ(layers_of(Stack::torchtitan_0_0_2, 126, 8), (Counts{15, 16, 16, 16, 16, 16, 16, 15}));
  EXPECT_EQ(layers_of(Stack::torchtitan, 126, 8), (Counts{15, 16, 16, 16, 16, 16, 16, 15}));
  EXPECT_EQ(layers_of(Stack::torchtitan_0_0_2, 32, 4), (Counts{8, 8, 8, 8}));
  EXPECT_EQ(layers_of(Stack::torchtitan_0_1, 32, 4), (Counts{8, 9, 8, 7}));
  EXPECT_EQ(layers_of(Stack::torchtitan_0_0_2, 7, 4), (Counts{1, 2, 2, 2}));
  EXPECT_EQ(layers_of(Stack::torchtitan_0_2_0, 7, 4), (Counts{2, 2, 2, 1}));
  EXPECT_EQ(layers_of(Stack::torchtitan, 2, 4), (Counts{0, 1, 1, 0}));
  EXPECT_TRUE(layers_of(Stack::torchtitan, 2, 5).empty());
  EXPECT_TRUE(layers_of(Stack::torchtitan_0_0_2, 3, 4).empty());
}

// --- what a stage holds
// -----------------------------------------------------------------------------------------------------------

constexpr Bytes kMessage = Bytes{2} * 16 * 64 * 2;  // b, s, h in 16 bits

Recipe pipeline(Stack stack) {
  Recipe r;
  r.stack = stack;
  r.precision = Precision::bf16;
  r.batch = 2;
  r.seq = 16;
  r.pp = 4;
  r.micro_batches = 5;
  r.checkpointing = Checkpointing::full;
  return r;
}

Trace traced(const Recipe& recipe, std::uint64_t stage) {
  TraceOptions options;
  options.rank = stage * mesh_of(recipe).stage_ranks();
  Result<Trace> trace = trace_step(llama(8), recipe, options);
  EXPECT_TRUE(trace.ok());
  return std::move(trace.value());
}

Bytes made_as(const Trace& trace, std::string_view name) {
  Bytes sum = 0;
  for (const StorageInfo& storage : trace.storages) {
    if (trace.names[storage.scope] == name) sum += storage.bytes;
  }
  return sum;
}

// Of all tensors when the first phase of that name ends.
Bytes live_after(const Trace& trace, std::string_view phase) {
  Bytes live = 0;
  bool within = false;
  for (const Event& event : trace.events) {
    if (event.type == EventType::mark) {
      if (within) break;
      within = trace.phases[event.id] == phase;
    }
    if (event.type == EventType::alloc) live += trace.storages[event.id].bytes;
    if (event.type == EventType::free) live -= trace.storages[event.id].bytes;
  }
  return live;
}

TEST(TitanPipeline, ReceivesIntoMemoryOfEveryMicroBatch) {
  const Recipe recipe = pipeline(Stack::torchtitan);
  EXPECT_EQ(made_as(traced(recipe, 0), "pipeline.received"), 5 * kMessage);      // gradients
  EXPECT_EQ(made_as(traced(recipe, 1), "pipeline.received"), 2 * 5 * kMessage);  // and activations
  EXPECT_EQ(made_as(traced(recipe, 3), "pipeline.received"), 5 * kMessage);
}

TEST(TitanPipeline, SaysWhereBuffersComeFrom) {
  const char* const source =
      source_of("pipeline.received", Category::communication, OpKind::receive, pipeline(Stack::torchtitan));
  EXPECT_NE(std::string(source).find("pipelining/stage.py"), std::string::npos);
}

TEST(TitanPipeline, KeepsOutputsAsTheReleaseDoes) {
  const auto after = [](Stack stack, std::uint64_t stage) {
    return live_after(traced(pipeline(stack), stage), "step1.zero_grad");
  };
  const auto beyond_none = [&](Stack stack, std::uint64_t stage) {
    return after(stack, stage) - after(Stack::torchtitan, stage);
  };
  constexpr Bytes kLogits = Bytes{2} * 16 * 128 * 2;
  EXPECT_EQ(beyond_none(Stack::torchtitan_0_0_2, 2), 5 * kMessage);
  EXPECT_EQ(beyond_none(Stack::torchtitan_0_1, 2), 0u);
  EXPECT_EQ(beyond_none(Stack::torchtitan_0_2_0, 3), 5 * kLogits);
}

TEST(TitanPipeline, GathersOnceAndSumsInFp32) {
  Recipe recipe = pipeline(Stack::torchtitan);
  recipe.precision = Precision::fp32;
  recipe.fsdp = 2;
  recipe.dp = 2;
  recipe.units = Units::titan;
  const Trace trace = traced(recipe, 2);
  const std::uint64_t layer = 4 * 64 * 64 + 3 * 64 * 96 + 2 * 64;
  constexpr std::uint64_t kLayers = 2, kSteps = 2;
  EXPECT_EQ(made_as(trace, "fsdp.unsharded"), kSteps * kLayers * layer * 2);
  EXPECT_EQ(made_as(trace, "fsdp.unsharded_gradients"), kSteps * kLayers * layer * 4);
}

// pytorch/pytorch#144535: before it nothing gave up what the last unit had reduced.
TEST(TitanPipeline, OldReductionsStay) {
  Recipe recipe = pipeline(Stack::torchtitan_0_0_2);
  recipe.precision = Precision::fp32;
  recipe.fsdp = 2;
  recipe.dp = 2;
  const auto after = [&](Stack stack) {
    recipe.stack = stack;
    return live_after(traced(recipe, 2), "step1.zero_grad");
  };
  const Bytes layer = (4 * 64 * 64 + 3 * 64 * 96 + 2 * 64) * 4;
  EXPECT_EQ(after(Stack::torchtitan_0_0_2) - after(Stack::torchtitan_0_1), layer + 5 * kMessage);
}

TEST(TitanPipeline, Float8IsGatheredInBytes) {
  Recipe recipe = pipeline(Stack::torchtitan);
  recipe.pp = recipe.micro_batches = 1;
  recipe.precision = Precision::fp32;
  recipe.fsdp = 2;
  recipe.dp = 2;
  recipe.units = Units::titan;
  recipe.compile = recipe.float8 = true;
  const Bytes wide = made_as(traced(recipe, 0), "fsdp.all_gather");
  recipe.float8_all_gather = true;
  const Bytes narrow = made_as(traced(recipe, 0), "fsdp.all_gather");
  // Two steps, forward and backward, of 8 layers: the flat input, half as large as the output, and the output.
  constexpr Bytes kMatrices = 4 * 64 * 64 + 3 * 64 * 96;
  EXPECT_EQ(wide - narrow, 2 * 2 * 8 * (kMatrices + kMatrices / 2));
}

}  // namespace
}  // namespace ledger
