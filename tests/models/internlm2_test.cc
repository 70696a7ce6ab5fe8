// InternLM2: which of its attention classes runs, and what its own code keeps beside Llama's.
#include <gtest/gtest.h>

#include "core/answer/prediction.h"
#include "tests/base/show_problem.h"

namespace ledger {
namespace {

ModelConfig internlm2(const char* more = "") {
  const Result<ModelConfig> config = read_model_config(
      std::string(R"({"model_type":"internlm2","hidden_size":64,"num_attention_heads":8,"num_key_value_heads":2,)"
                  R"("intermediate_size":96,"num_hidden_layers":3,"vocab_size":101,"bias":false)") +
      more + "}");
  EXPECT_EQ(outcome(config), "ok");
  return config.value();
}

Recipe small(Attention attention = Attention::sdpa) {
  Recipe recipe;
  recipe.batch = 2;
  recipe.seq = 16;
  recipe.attention = attention;
  return recipe;
}

Trace traced(const ModelConfig& config, const Recipe& recipe) {
  TraceOptions options;
  options.steps = 1;
  Result<Trace> trace = trace_step(config, recipe, options);
  EXPECT_EQ(outcome(trace), "ok");
  return trace.ok() ? std::move(trace.value()) : Trace();
}

std::size_t made_by(OpKind op, const ModelConfig& config, const Recipe& recipe) {
  const Trace trace = traced(config, recipe);
  std::size_t count = 0;
  for (const StorageInfo& storage : trace.storages)
    count += storage.op == op ? 1 : 0;
  return count;
}

TEST(InternLM2, RunsWhatTheFileSaysUnlessAskedForFlashAttention) {
  const ModelConfig unsaid = internlm2(), sdpa = internlm2(R"(,"attn_implementation":"sdpa")");
  EXPECT_EQ(made_by(OpKind::softmax, unsaid, small()), 3u);
  EXPECT_EQ(made_by(OpKind::flash_attention, unsaid, small()), 0u);
  EXPECT_EQ(made_by(OpKind::softmax, sdpa, small(Attention::eager)), 3u);
  EXPECT_EQ(made_by(OpKind::softmax, sdpa, small()), 0u);
  EXPECT_GT(made_by(OpKind::flash_attention, sdpa, small()), 0u);
  EXPECT_GT(made_by(OpKind::flash_attention, unsaid, small(Attention::flash)), 0u);
  EXPECT_EQ(outcome(predict_run(unsaid, small(Attention::math))),
            "unsupported_recipe where=attention read=math expected=family_attention_not_modelled nearest=");
  EXPECT_EQ(outcome(predict_run(sdpa, small(Attention::math))), "ok");
}

// The mask has a column for a token to come; every layer has its own frequencies.
TEST(InternLM2, MakesItsMaskAndTablesItself) {
  const Trace trace = traced(internlm2(), small());
  std::size_t masks = 0, tables = 0;
  for (const StorageInfo& storage : trace.storages) {
    if (storage.op == OpKind::additive_mask) {
      EXPECT_EQ(storage.bytes, 2u * 16 * 17);
      ++masks;
    }
    if (storage.op == OpKind::load_buffer) {
      EXPECT_EQ(storage.bytes, 4u * 4);
      ++tables;
    }
  }
  EXPECT_EQ(masks, 1u);
  EXPECT_EQ(tables, 3u);
}

// Sdpa's keys and values are copies at all heads: the product that they were views of is gone after forward.
TEST(InternLM2, KeepsItsProductOnlyWhereAViewOfItIsKept) {
  const auto kept = [](const Recipe& recipe) {
    const Trace trace = traced(internlm2(R"(,"attn_implementation":"sdpa")"), recipe);
    Bytes bytes = 0;
    for (const Event& event : trace.events) {
      if (event.type == EventType::mark && trace.phases[event.id] == "step1.backward") break;
      if (event.type != EventType::alloc && event.type != EventType::free) continue;
      const StorageInfo& storage = trace.storages[event.id];
      if (storage.op != OpKind::mm || !trace.names[storage.scope].ends_with("wqkv")) continue;
      bytes = event.type == EventType::alloc ? bytes + storage.bytes : bytes - storage.bytes;
    }
    return bytes;
  };
  EXPECT_EQ(kept(small()), 0u);
  EXPECT_EQ(kept(small(Attention::flash)), 3u * 2 * 2 * 16 * (8 + 2 * 2) * 8)
      << "flash attention takes the values as a view";
}

}  // namespace
}  // namespace ledger
