// The verdict: peak against card. Numbers are of 8 x Linear(2048, 2048) without bias in fp32, one row of input, whose
// tensors are large and few: 16 MiB each of weights, gradients and the two moments; on an H100 whose context takes
// between 414 MiB (smallest seen) and 781 MiB (largest).
#include "core/answer/prediction.h"

#include <gtest/gtest.h>

#include "core/base/json.h"
#include "tests/training/runs.h"

namespace ledger {
namespace {

constexpr Bytes kLow = 414 * kMiB, kHigh = 781 * kMiB;

Prediction predicted(Bytes limit) {
  Recipe recipe = recipe_of({{"precision", "fp32"}, {"batch", "1"}});
  recipe.memory_limit_bytes = limit;
  std::vector<PlainLinear> layers(8, {2048, 2048, false});
  return predict_run(plain_stack(layers), recipe).value();
}

TEST(Verdict, ContextsOfTheCardAreTheCataloguesFigures) {
  EXPECT_EQ(predicted(0).gpu->context_low_bytes, kLow);
  EXPECT_EQ(predicted(0).gpu->context_high_bytes, kHigh);
}

TEST(Verdict, WithoutALimitTheCardsOwnCapacityCounts) {
  const Prediction p = predicted(0);
  EXPECT_EQ(p.verdict.capacity_bytes, p.gpu->usable_bytes);
  EXPECT_EQ(p.verdict.usable_bytes, p.gpu->usable_bytes - kHigh);
  EXPECT_EQ(p.verdict.answer, Answer::fits);
}

struct CardCase {
  const char* name;
  Bytes limit;
  Answer answer;
};

// Limits are stated from the unlimited run: `reserved` bytes are enough with the largest context, or with the smallest.
TEST(Verdict, Answers) {
  const Bytes reserved = predicted(0).replay.peak_reserved_bytes;
  const Bytes allocated = predicted(0).replay.peak_allocated_bytes;
  const CardCase cases[] = {
      {"twice the room", 2 * (reserved + kHigh), Answer::fits},
      {"just what it reserves, with the largest context", reserved + kHigh, Answer::tight},
      {"just what it reserves, with the smallest context", reserved + kLow, Answer::tight},
      {"less than live blocks, with the smallest context", allocated + kLow - 1, Answer::does_not_fit},
      {"half the live blocks", allocated / 2 + kLow, Answer::does_not_fit},
      {"less than the context", kLow / 2, Answer::does_not_fit},
  };
  for (const CardCase& c : cases) {
    const Prediction p = predicted(c.limit);
    EXPECT_EQ(p.verdict.answer, c.answer) << c.name;
    EXPECT_EQ(p.verdict.capacity_bytes, c.limit) << c.name;
    const Bytes usable = c.limit > kHigh ? c.limit - kHigh : 0;
    EXPECT_EQ(p.verdict.usable_bytes, usable) << c.name;
    EXPECT_EQ(p.verdict.headroom_bytes, static_cast<std::int64_t>(usable) - static_cast<std::int64_t>(allocated))
        << c.name;
    EXPECT_EQ(p.verdict.out_of_memory, c.answer == Answer::does_not_fit) << c.name;
    EXPECT_FALSE(p.verdict.fragmentation) << c.name;
  }
}

struct Strike {
  const char* name;
  Bytes usable;  // of the card, with the smallest context
  const char* phase;
  const char* tensor;
  const char* op;
  std::int32_t layer;
};

// When out of memory strikes names the block. Each weight, gradient and moment is a segment of 16 MiB; the cuBLAS
// workspaces take 32 MiB in forward and 32 MiB in backward; features, outputs and scalars share one segment of 2 MiB.
constexpr Bytes kEight = 128 * kMiB, kShared = 66 * kMiB;

TEST(Verdict, NamesTheTensorThatDoesNotFit) {
  const Strike cases[] = {
      {"nothing", 0, "load", "layers.*.linear.weight", "param", 0},
      {"two weights and a half", 40 * kMiB, "load", "layers.*.linear.weight", "param", 2},
      {"weights and no workspace", 128 * kMiB + 20 * kMiB, "step1.forward", "cublas", "workspace", -1},
      {"two gradients and a half", kEight + kShared + 40 * kMiB, "step1.backward", "layers.*.linear", "mm", 5},
      {"one moment and a half", 2 * kEight + kShared + 24 * kMiB, "step1.optimizer", "adamw.exp_avg_sq", "zeros_like",
       -1},
  };
  for (const Strike& c : cases) {
    const Prediction p = predicted(kLow + c.usable);
    ASSERT_TRUE(p.verdict.out_of_memory) << c.name;
    const StorageInfo& storage = p.trace.storages[p.verdict.oom_storage];
    EXPECT_EQ(p.trace.phases[p.verdict.oom_phase], c.phase) << c.name;
    EXPECT_EQ(p.trace.names[storage.scope], c.tensor) << c.name;
    EXPECT_STREQ(op_name(storage.op), c.op) << c.name;
    EXPECT_EQ(storage.layer, c.layer) << c.name;
  }
}

TEST(Verdict, TheLargestCategoryIsTheOneAtThePeak) {
  EXPECT_EQ(predicted(0).verdict.largest_category, Category::optimizer_states);  // 8 of 16 bytes a parameter
}

// Small tensors in one segment of 2 MiB. The two workspaces of 32 MiB are segments to measure, or 64 MiB in pages of 20
// MiB.
TEST(Prediction, ExpandableSegmentsRoundToPages) {
  Recipe recipe = recipe_of({});
  EXPECT_EQ(predict_run(odd_llama(), recipe).value().replay.peak_reserved_bytes, 66 * kMiB);
  recipe.allocator = AllocatorKind::torch_expandable;
  EXPECT_EQ(predict_run(odd_llama(), recipe).value().replay.peak_reserved_bytes, 82 * kMiB);
}

TEST(Prediction, HopperTakesALargerCublasWorkspaceThanAmpere) {
  Recipe recipe = recipe_of({});
  recipe.gpu = "a100-80gb";
  const Bytes ampere = predict_run(odd_llama(), recipe).value().replay.peak_workspace_bytes;
  recipe.gpu = "h100-80gb";
  const Bytes hopper = predict_run(odd_llama(), recipe).value().replay.peak_workspace_bytes;
  EXPECT_EQ(hopper - ampere, 2 * (32 * kMiB - 8519680));  // one each for the forward and the autograd thread
}

TEST(Prediction, CountsParameters) {
  const Prediction p = predict_run(odd_llama(), recipe_of({})).value();
  // Per layer 2 x 48 x 96 + 2 x 48 x 32 + 3 x 48 x 77 + 2 x 48; embedding and head 259 x 48 each; final norm 48.
  EXPECT_EQ(p.params, 2u * (9216 + 3072 + 11088 + 96) + 2 * 259 * 48 + 48);
  EXPECT_EQ(p.trainable, p.params);
}

}  // namespace
}  // namespace ledger
