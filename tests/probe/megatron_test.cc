// The stack megatron on one process: its fused operators have the gradients of the loss that they state, whichever of
// them add to the main gradients, and however much is recomputed.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "core/memory/replay.h"
#include "core/training/megatron_step.h"
#include "core/training/step.h"
#include "tests/probe/slope.h"
#include "tests/probe/widen.h"

namespace ledger {
namespace {

constexpr const char* kMegatronLlama = R"({"model_type": "llama", "hidden_size": 24, "num_hidden_layers": 2,
  "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 36, "vocab_size": 100})";
constexpr const char* kMegatronQwen2 = R"({"model_type": "qwen2", "hidden_size": 24, "num_hidden_layers": 2,
  "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 36, "vocab_size": 128})";
constexpr const char* kMegatronGpt =
    R"({"model_type": "gpt2", "n_embd": 24, "n_layer": 2, "n_head": 4, "vocab_size": 100,
  "n_positions": 16, "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0})";
constexpr const char* kMegatronDropped =
    R"({"model_type": "gpt2", "n_embd": 24, "n_layer": 2, "n_head": 4, "vocab_size": 100,
  "n_positions": 16, "resid_pdrop": 0.2, "embd_pdrop": 0.1, "attn_pdrop": 0})";

struct MegatronStep {
  const char* name;
  const char* config;
  bool fusion = true;
  Checkpointing checkpointing = Checkpointing::none;
};

void PrintTo(const MegatronStep& step, std::ostream* out) {
  *out << step.name;
}

constexpr MegatronStep kMegatronSteps[] = {
    {"llama", kMegatronLlama},
    {"llama_unfused", kMegatronLlama, false},
    {"llama_core_recomputed", kMegatronLlama, true, Checkpointing::selective},
    {"llama_recomputed", kMegatronLlama, true, Checkpointing::full},
    {"qwen2", kMegatronQwen2},
    {"gpt", kMegatronGpt},
    {"gpt_unfused", kMegatronGpt, false},
    {"gpt_recomputed", kMegatronGpt, true, Checkpointing::full},
    {"gpt_dropped", kMegatronDropped},
};

class MegatronRuns : public testing::TestWithParam<MegatronStep> {
 protected:
  static Trace traced(std::uint32_t steps, std::uint64_t micro_batches, double max_grad_norm = 0) {
    const Result<ModelConfig> config = read_model_config(GetParam().config);
    EXPECT_TRUE(config.ok());
    Recipe recipe;
    recipe.stack = Stack::megatron;
    recipe.precision = Precision::megatron_bf16;
    recipe.checkpointing = GetParam().checkpointing;
    recipe.micro_batches = micro_batches;
    recipe.batch = 2;
    recipe.seq = 8;
    TraceOptions options;
    options.steps = steps;
    options.operands = true;
    options.weights = DType::f64;
    options.adamw.lr = 1e-2;
    options.max_grad_norm = max_grad_norm;
    MegatronRun run = megatron_run(options);
    run.gradient_accumulation_fusion = GetParam().fusion;
    Result<Trace> trace = trace_megatron(config.value(), recipe, 0, run);
    EXPECT_TRUE(trace.ok()) << (trace.ok() ? "" : trace.problem().where + ": " + trace.problem().expected);
    if (!trace.ok()) return {};
    widen(trace.value());
    return std::move(trace.value());
  }

  static HostRun run(const Trace& trace, const std::function<void(const HostExecutor&, std::uint32_t)>& ended = {}) {
    HostRunOptions options;
    options.executor.poison = true;
    options.executor.on_phase_end = ended;
    HostRun result = run_on_host(trace, {}, options);
    EXPECT_FALSE(result.failure) << result.failure->what;
    return result;
  }

  // The main gradients of all parameters in a row, after the first backward pass.
  static std::vector<double> gradients(const Trace& trace) {
    std::vector<double> all;
    run(trace, [&](const HostExecutor& executor, std::uint32_t phase) {
      if (!all.empty() || !trace.phases[phase].ends_with("backward")) return;
      for (StorageId id = 0; id < trace.storages.size(); ++id) {
        if (trace.names[trace.storages[id].scope] == "main_grads") all = executor.read(id);
      }
    });
    return all;
  }
};

INSTANTIATE_TEST_SUITE_P(All, MegatronRuns, testing::ValuesIn(kMegatronSteps),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(MegatronRuns, GradientsAreTheSlopeOfTheLoss) {
  const Trace trace = traced(1, 1);
  const std::vector<double> flat = gradients(trace);
  double stated = 0;
  std::size_t at = 0;
  for (std::size_t number = 0; number < trace.parameters.size(); ++number) {
    const std::uint64_t elements = trace.storages[trace.parameters[number].storage].shape.numel();
    for (std::size_t i = 0; i < elements; ++i)
      stated += flat.at(at++) * direction(number, i);
  }
  EXPECT_EQ(at, flat.size());
  const double measured = measured_slope(trace, 1e-5);
  EXPECT_NEAR(stated, measured, 1e-7 * std::abs(measured));
}

TEST_P(MegatronRuns, LossFalls) {
  const HostRun result = run(traced(8, 2, 1));
  ASSERT_EQ(result.losses.size(), 16u);  // of each micro-batch
  EXPECT_NE(result.losses[0], result.losses[1]) << "micro-batches are not the same tokens";
  EXPECT_LT(result.losses[14] + result.losses[15], 0.95 * (result.losses[0] + result.losses[1]));
}

}  // namespace
}  // namespace ledger
