// Peaks that Megatron-LM's own tests measured.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/parallel/mesh_of.h"
#include "tests/config/fixtures.h"
#include "tests/parallel/megatron_runs.h"

namespace ledger {
namespace {

// Mixtral, on Megatron's flags.
void set_experts(ModelConfig& config, const Json& m) {
  const ModelConfig llama;
  config.style = llama.style;
  config.style.position = Position::rotary;
  config.act = Act::silu;
  config.attention_bias = config.mlp_bias = false;
  config.rotary_dim = *m.find("rotary_dim")->as_unsigned();
  config.intermediate_size = *m.find("ffn")->as_unsigned();
  config.moe.experts = *m.find("experts")->as_unsigned();
  config.moe.per_token = *m.find("experts_of_a_token")->as_unsigned();
  config.moe.width = config.intermediate_size;
  config.moe.normalised = true;
  config.moe.layers.assign(static_cast<std::size_t>(config.num_hidden_layers), true);
}

// --squared-relu --disable-bias-linear --group-query-attention, heads turned in part.
void set_squared_relu(ModelConfig& config, const Json& m) {
  config.act = Act::relu2;
  config.attention_bias = config.mlp_bias = false;
  config.rotary_dim = *m.find("rotary_dim")->as_unsigned();
}

// --multi-latent-attention without --qk-layernorm.
void set_latent(ModelConfig& config, const Json& m) {
  const auto number = [&](const char* key) { return *m.find(key)->as_unsigned(); };
  config.style.projections = Projections::latent;
  config.latent = {number("q_rank"), number("kv_rank"), number("nope"), number("rope"), number("value"), false, false};
  config.rotary_dim = config.latent.rope_dim;
  config.head_dim = config.latent.nope_dim + config.latent.rope_dim;
}

// Golden values of Megatron-LM's tests: the last rank's torch.cuda.memory_stats on DGX H100.
TEST(Megatron, GoldenPeaks) {
  const Result<Json> parsed = parse_json(fixture("megatron_golden.json"), {.bytes = 1u << 20});
  ASSERT_TRUE(parsed.ok());
  for (const Json& row : parsed.value().find("rows")->items()) {
    const std::string id(*row.find("id")->as_string());
    SCOPED_TRACE(id + " on " + std::string(*row.find("gpu")->as_string()));
    const Json& m = *row.find("model");
    const auto number = [&](const char* key) { return *m.find(key)->as_unsigned(); };
    ModelConfig config = gpt(number("hidden"), number("layers"), number("heads"), number("positions"));
    config.num_key_value_heads = number("kv_heads");
    config.vocab_size = number("vocab");
    config.tie_word_embeddings = *m.find("tied")->as_bool();
    if (*m.find("rope")->as_bool()) config.style.position = Position::rotary;
    const bool experts = m.find("experts") != nullptr;
    if (experts) set_experts(config, m);
    if (m.find("squared_relu") != nullptr) set_squared_relu(config, m);
    if (m.find("latent") != nullptr) set_latent(config, *m.find("latent"));
    const Result<Recipe> recipe = recipe_from(*row.find("recipe"));
    ASSERT_TRUE(recipe.ok()) << recipe.problem().where;
    if (row.find("dropout") != nullptr)
      config.embedding_dropout = config.residual_dropout = config.attention_dropout = 0;
    // CUBLAS_WORKSPACE_CONFIG=:4096:8, as determinism wants it, on every card.
    const bool release = experts || m.find("squared_relu") != nullptr;
    const bool deterministic = row.find("deterministic") == nullptr;
    const bool hopper = !row.find("gpu")->as_string()->starts_with("A100");
    const Result<Trace> trace =
        trace_megatron(config, recipe.value(), recipe.value().pp - 1,
                       {.steps = 2,
                        .cublas_workspace_bytes = hopper || deterministic ? 32 * kMiB : 8 * kMiB + 128 * kKiB,
                        .te_workspace_bytes = hopper ? 32 * kMiB : 4 * kMiB,
                        .gradient_accumulation_fusion = release,
                        .rope_fusion = !release || row.find("rope_fusion") != nullptr,
                        .keeps_dummy_gradients = row.find("te_before_2_3") == nullptr,
                        .rank = mesh_of(recipe.value()).world() - 1});
    ASSERT_TRUE(trace.ok()) << trace.problem().where << " " << trace.problem().expected;
    const Replay r = replay(trace.value(), {});
    Bytes first = 0;
    for (const PhasePeak& phase : r.phases) {
      if (trace.value().phases[phase.phase].starts_with("step2")) break;
      first = std::max(first, phase.allocated_peak_bytes);
    }
    const double bar = *row.find("bar")->as_real();
    const auto near = [&](Bytes predicted, double measured, const char* what, double within) {
      EXPECT_NEAR(static_cast<double>(predicted) / measured, 1, within) << what;
    };
    near(r.peak_allocated_bytes, *row.find("peak_bytes")->as_real(), "peak", bar);
    ASSERT_NE(row.find("predicted_bytes"), nullptr);
    EXPECT_EQ(r.peak_allocated_bytes, row.find("predicted_bytes")->as_unsigned()) << "docs/accuracy.md prints this";
    if (experts) {
      // Routers send more tokens to some ranks than to others; what stays after a step does not depend on it.
      EXPECT_LT(static_cast<double>(r.peak_allocated_bytes), *row.find("peak_bytes")->as_real());
      const double after = *row.find("after_step_gib")->as_real() * static_cast<double>(kGiB);
      EXPECT_NEAR(static_cast<double>(r.samples.back().allocated) / after, 1, *row.find("after_bar")->as_real());
      continue;
    }
    near(first, *row.find("first_step_peak_gib")->as_real() * static_cast<double>(kGiB), "peak of the first step",
         row.find("first_bar") == nullptr ? bar : *row.find("first_bar")->as_real());
    // Tensors of a pipeline that wait for Python's garbage collector are not modelled: some ten MB.
    if (recipe.value().pp != 1) continue;
    near(r.samples.back().allocated, *row.find("after_step_gib")->as_real() * static_cast<double>(kGiB), "after a step",
         bar);
  }
}

}  // namespace
}  // namespace ledger
