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
constexpr const char* kMegatronMixtral = R"({"model_type": "mixtral", "hidden_size": 24, "num_hidden_layers": 2,
  "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 20, "vocab_size": 100,
  "num_local_experts": 4, "num_experts_per_tok": 2})";
// Heads with norms, and plain layers between those with experts.
constexpr const char* kMegatronQwen3Moe = R"({"model_type": "qwen3_moe", "hidden_size": 24, "num_hidden_layers": 2,
  "head_dim": 8, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 36, "vocab_size": 100,
  "num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 10, "norm_topk_prob": true,
  "decoder_sparse_step": 2})";
// Probabilities of all experts, and one with a gate that every token visits.
constexpr const char* kMegatronQwen2Moe = R"({"model_type": "qwen2_moe", "hidden_size": 24, "num_hidden_layers": 2,
  "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 36, "vocab_size": 128,
  "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 10, "shared_expert_intermediate_size": 14})";

constexpr const char* kMegatronLong = R"({"model_type": "gpt2", "n_embd": 24, "n_layer": 2, "n_head": 4,
  "vocab_size": 100, "n_positions": 20, "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0})";

// Without experts; queries by way of a narrow state or not.
constexpr const char* kMegatronLatent = R"({"model_type": "deepseek_v3", "hidden_size": 24, "num_hidden_layers": 2,
  "num_attention_heads": 4, "intermediate_size": 36, "vocab_size": 100, "q_lora_rank": 9, "kv_lora_rank": 7,
  "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": 5, "first_k_dense_replace": 2})";
constexpr const char* kMegatronLatentPlain = R"({"model_type": "deepseek_v2", "hidden_size": 24,
  "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 36, "vocab_size": 100, "q_lora_rank": null,
  "kv_lora_rank": 7, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": 5, "first_k_dense_replace": 2,
  "num_experts_per_tok": 2})";

struct MegatronStep {
  const char* name;
  const char* config;
  bool fusion = true;
  Checkpointing checkpointing = Checkpointing::none;
  bool rope_fusion = true;
  std::uint64_t rotary_dim = 0;
  Attention attention = Attention::sdpa;
  TransformerImpl transformer_impl = TransformerImpl::transformer_engine;
  Loss loss = Loss::full;
  bool squared_relu = false;
};

void PrintTo(const MegatronStep& step, std::ostream* out) {
  *out << step.name;
}

constexpr MegatronStep kMegatronSteps[] = {
    {"llama", kMegatronLlama},
    {"llama_unfused", kMegatronLlama, false},
    {"llama_core_recomputed", kMegatronLlama, true, Checkpointing::selective},
    {"llama_recomputed", kMegatronLlama, true, Checkpointing::full},
    {"llama_plain_rope", kMegatronLlama, true, Checkpointing::none, false},
    {"llama_turned_in_part", kMegatronLlama, true, Checkpointing::none, true, 4},
    {"llama_turned_in_part_plain_rope", kMegatronLlama, true, Checkpointing::full, false, 4},
    {"qwen2", kMegatronQwen2},
    {"mixtral", kMegatronMixtral},
    {"mixtral_unfused", kMegatronMixtral, false},
    {"mixtral_recomputed", kMegatronMixtral, true, Checkpointing::full},
    {"qwen3_moe", kMegatronQwen3Moe},
    {"qwen2_moe", kMegatronQwen2Moe},
    {"gpt", kMegatronGpt},
    {"gpt_unfused", kMegatronGpt, false},
    {"gpt_recomputed", kMegatronGpt, true, Checkpointing::full},
    {"gpt_dropped", kMegatronDropped},
    {"llama_writes_scores", kMegatronLlama, true, Checkpointing::none, true, 0, Attention::eager},
    {"gpt_writes_scores", kMegatronGpt, false, Checkpointing::selective, true, 0, Attention::eager},
    {"llama_fused_loss", kMegatronLlama, true, Checkpointing::none, true, 0, Attention::sdpa,
     TransformerImpl::transformer_engine, Loss::vocab_parallel_fused},
    {"deepseek", kMegatronLatent, true, Checkpointing::none, true, 0, Attention::eager},
    {"deepseek_recomputed", kMegatronLatent, false, Checkpointing::full, true, 0, Attention::eager},
    {"deepseek_core_recomputed", kMegatronLatentPlain, false, Checkpointing::selective, true, 0, Attention::eager},
    {"gpt_squared_relu", kMegatronGpt, true, Checkpointing::none, true, 0, Attention::sdpa,
     TransformerImpl::transformer_engine, Loss::full, true},
    {"gpt_local", kMegatronLong, true, Checkpointing::none, true, 0, Attention::eager, TransformerImpl::local},
    {"gpt_local_unfused", kMegatronLong, false, Checkpointing::none, true, 0, Attention::eager, TransformerImpl::local},
    {"gpt_local_recomputed", kMegatronLong, true, Checkpointing::full, true, 0, Attention::eager,
     TransformerImpl::local},
};

class MegatronRuns : public testing::TestWithParam<MegatronStep> {
 protected:
  static Trace traced(std::uint32_t steps, std::uint64_t micro_batches, double max_grad_norm = 0) {
    Result<ModelConfig> config = read_model_config(GetParam().config);
    EXPECT_TRUE(config.ok());
    if (GetParam().squared_relu) {  // Nemotron's, without biases
      config.value().act = Act::relu2;
      config.value().attention_bias = config.value().mlp_bias = false;
    }
    if (GetParam().rotary_dim != 0) config.value().rotary_dim = GetParam().rotary_dim;
    Recipe recipe;
    recipe.stack = Stack::megatron;
    recipe.precision = Precision::megatron_bf16;
    recipe.checkpointing = GetParam().checkpointing;
    recipe.micro_batches = micro_batches;
    recipe.batch = 2;
    recipe.seq = GetParam().transformer_impl == TransformerImpl::local ? 20 : 8;  // its softmax wants more than 16
    recipe.attention = GetParam().attention;
    recipe.loss = GetParam().loss;
    recipe.transformer_impl = GetParam().transformer_impl;
    TraceOptions options;
    options.steps = steps;
    options.operands = true;
    options.weights = DType::f64;
    options.adamw.lr = 1e-2;
    options.max_grad_norm = max_grad_norm;
    MegatronRun run = megatron_run(options);
    run.gradient_accumulation_fusion = GetParam().fusion;
    run.rope_fusion = GetParam().rope_fusion;
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

  // The main gradients of all parameters in a row, and of all experts', after the first backward pass.
  struct MainGradients {
    std::vector<double> of_all, of_experts;
  };
  static MainGradients gradients(const Trace& trace) {
    MainGradients main;
    run(trace, [&](const HostExecutor& executor, std::uint32_t phase) {
      if (!main.of_all.empty() || !trace.phases[phase].ends_with("backward")) return;
      for (StorageId id = 0; id < trace.storages.size(); ++id) {
        const std::string& name = trace.names[trace.storages[id].scope];
        if (name == "main_grads") main.of_all = executor.read(id);
        if (name == "expert_main_grads") main.of_experts = executor.read(id);
      }
    });
    return main;
  }
};

INSTANTIATE_TEST_SUITE_P(All, MegatronRuns, testing::ValuesIn(kMegatronSteps),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(MegatronRuns, GradientsAreTheSlopeOfTheLoss) {
  const Trace trace = traced(1, 1);
  const MainGradients main = gradients(trace);
  double stated = 0;
  std::size_t at = 0, at_expert = 0;
  for (std::size_t number = 0; number < trace.parameters.size(); ++number) {
    const std::uint64_t elements = trace.storages[trace.parameters[number].storage].shape.numel();
    const bool expert = trace.parameters[number].name.find(".mlp.experts.") != std::string::npos;
    for (std::size_t i = 0; i < elements; ++i)
      stated += (expert ? main.of_experts.at(at_expert++) : main.of_all.at(at++)) * direction(number, i);
  }
  EXPECT_EQ(at, main.of_all.size());
  EXPECT_EQ(at_expert, main.of_experts.size());
  const double measured = measured_slope(trace, 5e-6);
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
