// torchtune's decoder by hand where torch.compile runs it: what a layer keeps for backward, and what the loss holds.
//
// Letters as in torchtitan_test.cc: T tokens, H hidden, F ffn; keys and values are repeated at all query heads. Source:
// torchtune modules/transformer.py, training/_compile.py (0.6); torch/_functorch/partitioners.py.
#include "core/models/torchtune.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/memory/replay.h"
#include "core/training/step.h"
#include "tests/training/runs.h"

namespace ledger {
namespace {

constexpr std::uint64_t kWidth = 64, kFfn = 160, kHeads = 8, kKvHeads = 4, kHead = 8, kWords = 97, kTokens = 32;
constexpr std::uint64_t kMatrices = 2 * kWidth * kWidth + 2 * kWidth * kKvHeads * kHead + 3 * kWidth * kFfn;

Trace traced(std::uint64_t layers, Settings settings) {
  ModelConfig config = odd_llama(layers);
  config.hidden_size = kWidth;
  config.intermediate_size = kFfn;
  config.num_attention_heads = kHeads;
  config.num_key_value_heads = kKvHeads;
  config.head_dim = kHead;
  config.vocab_size = kWords;
  settings.insert(settings.begin(), {{"stack", "torchtune"}, {"compile", "true"}});
  Recipe recipe = recipe_of(settings);
  recipe.batch = 2;
  recipe.seq = kTokens / 2;
  const Result<Trace> trace = trace_step(config, recipe, {.steps = 1, .weights = {}, .adamw = {}});
  EXPECT_TRUE(trace.ok());
  return trace.ok() ? trace.value() : Trace();
}

Bytes kept_by_a_layer(const Settings& settings) {
  const auto after_forward = [&](std::uint64_t layers) {
    return replay(traced(layers, settings), {}).phases.at(1).end_bytes;
  };
  return after_forward(3) - after_forward(2) - 2 * (kMatrices + 2 * kWidth);
}

// Two norms: input 2 H, rstd 4, result 2 H; attention: q, k, v and the result 2 H each, logsumexp 4 a head, the flash
// kernel's random state; w1's and w3's results and their product 2 F each. Recomputed, a layer keeps its input.
TEST(Torchtune, CompiledLayersKeepWhatBackwardReads) {
  const Bytes norms = 2 * (2 * kWidth + 4 + 2 * kWidth), attention = 8 * kWidth + 4 * kHeads, feed = 3 * 2 * kFfn;
  EXPECT_EQ(kept_by_a_layer({}), kTokens * (norms + attention + feed) + 16 + 8);
  EXPECT_EQ(kept_by_a_layer({{"checkpointing", "full"}}), kTokens * 2 * kWidth);
}

// Each chunk's 16-bit logits wait for the loss and their gradient is written beside them; nothing in fp32.
TEST(Torchtune, ACompiledChunkMakesNoFp32Logits) {
  const Trace trace = traced(1, {{"loss", "chunked"}});
  std::size_t logits = 0;
  for (const StorageInfo& storage : trace.storages) {
    if (storage.category != Category::logits || storage.shape.numel() != kTokens / 8 * kWords) continue;
    EXPECT_EQ(storage.bytes, kTokens / 8 * kWords * 2);
    ++logits;
  }
  EXPECT_GE(logits, 2 * kTorchtuneChunks);
}

// compile_loss() returns a compiled copy of the loss over full logits, which the recipe for one GPU does not keep.
TEST(Torchtune, TheLossOverFullLogitsRunsUncompiled) {
  const Trace trace = traced(1, {});
  const auto compiled = std::count_if(trace.storages.begin(), trace.storages.end(), [](const StorageInfo& s) {
    return s.category == Category::logits && s.op == OpKind::compiled;
  });
  EXPECT_EQ(compiled, 0);
}

}  // namespace
}  // namespace ledger
