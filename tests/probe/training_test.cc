// Training works, not only its parts: each recipe memorises a batch, and running changes nothing about the prediction.
#include <gtest/gtest.h>

#include <cmath>
#include <optional>

#include "core/training/step.h"
#include "probe/host/run_host.h"

namespace ledger {
namespace {

struct TrainingCase {
  const char* name;
  const char* config;
  std::optional<DType> weights = std::nullopt;  // fp32 weights are no recipe of this stack's own yet
  Precision precision = Precision::bf16;
  bool autocast = false;
  Checkpointing checkpointing = Checkpointing::none;
  double final_loss = 0.05;  // probe.md asks for this after 150 steps
};

void PrintTo(const TrainingCase& c, std::ostream* out) {
  *out << c.name;
}

constexpr const char* kLlama = R"({"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 2,
  "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 64, "vocab_size": 64})";
constexpr const char* kTied =
    R"({"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 1, "intermediate_size": 64, "vocab_size": 64, "tie_word_embeddings": true})";

const TrainingCase kCases[] = {
    {.name = "fp32", .config = kLlama, .weights = DType::f32},
    {.name = "bf16", .config = kLlama, .precision = Precision::bf16, .final_loss = 0.2},
    {.name = "amp_bf16", .config = kLlama, .precision = Precision::amp_bf16},
    {.name = "bf16_autocast", .config = kLlama, .precision = Precision::bf16, .autocast = true, .final_loss = 0.2},
    {.name = "fp32_checkpointed", .config = kLlama, .weights = DType::f32, .checkpointing = Checkpointing::full},
    {.name = "amp_bf16_checkpointed",
     .config = kLlama,
     .precision = Precision::amp_bf16,
     .checkpointing = Checkpointing::full},
    {.name = "fp32_tied", .config = kTied, .weights = DType::f32},
};

class Training : public testing::TestWithParam<TrainingCase> {
 protected:
  static Trace trace(std::uint32_t steps, bool operands = true) {
    Recipe recipe;
    recipe.batch = 4;
    recipe.seq = 16;
    recipe.precision = GetParam().precision;
    recipe.autocast = GetParam().autocast;
    recipe.checkpointing = GetParam().checkpointing;
    TraceOptions options;
    options.steps = steps;
    options.operands = operands;
    options.weights = GetParam().weights;
    options.adamw.lr = 1e-2;
    Result<ModelConfig> config = read_model_config(GetParam().config);
    EXPECT_TRUE(config.ok());
    Result<Trace> result = trace_step(config.value(), recipe, options);
    EXPECT_TRUE(result.ok());
    return result.ok() ? std::move(result.value()) : Trace();
  }
};

INSTANTIATE_TEST_SUITE_P(Recipes, Training, testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

// From ln 64 = 4.16 down to a memorised batch: wrong signs, stale gradients or a missing bias correction do not get
// there.
TEST_P(Training, MemorisesABatch) {
  const HostRun run = run_on_host(trace(150), {});
  ASSERT_FALSE(run.failure) << run.failure->what;
  EXPECT_NEAR(run.losses.front(), std::log(64.0), 0.3);
  EXPECT_LT(run.losses.back(), GetParam().final_loss);
}

TEST_P(Training, NoTensorIsReadUninitialisedOrDead) {
  HostRunOptions options;
  options.executor.poison = true;
  const Trace traced = trace(3);
  const HostRun poisoned = run_on_host(traced, {}, options), plain = run_on_host(traced, {});
  ASSERT_FALSE(poisoned.failure) << poisoned.failure->what;
  for (const double loss : poisoned.losses)
    EXPECT_TRUE(std::isfinite(loss));
  EXPECT_EQ(poisoned.losses, plain.losses);
}

TEST_P(Training, RunningMeasuresWhatWasPredicted) {
  const Trace executed = trace(2), predicted = trace(2, false);
  for (const bool expandable : {false, true}) {
    const ReplayOptions options{.allocator = {.expandable_segments = expandable}, .record_addresses = true};
    const Replay prediction = replay(predicted, options);
    const HostRun run = run_on_host(executed, options);
    ASSERT_FALSE(run.failure) << run.failure->what;
    EXPECT_EQ(run.replay.addresses, prediction.addresses);
    EXPECT_EQ(run.replay.peak_tensor_bytes, prediction.peak_tensor_bytes);
    EXPECT_EQ(run.replay.peak_reserved_bytes, prediction.peak_reserved_bytes);
  }
}

}  // namespace
}  // namespace ledger
