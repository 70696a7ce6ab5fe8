// Every family whose step is traced: the modules make the parameters that are counted, and adapters find their layers.
#include "core/config/families.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/answer/prediction.h"
#include "core/answer/report.h"
#include "core/models/names.h"
#include "core/models/parameter_adapter.h"
#include "tests/answer/json_path.h"
#include "tests/base/show_problem.h"
#include "tiny_families.h"

namespace ledger {
namespace {

class TracedFamilies : public testing::TestWithParam<tiny::TinyFamily> {
 protected:
  static ModelConfig config() {
    const Result<ModelConfig> read = read_model_config(tiny::text_of(GetParam()));
    EXPECT_EQ(outcome(read), "ok");
    return read.value();
  }
  static Trace traced(const Recipe& recipe) {
    Result<Trace> trace = trace_step(config(), recipe);
    EXPECT_EQ(outcome(trace), "ok");
    return trace.ok() ? std::move(trace.value()) : Trace();
  }
  static Recipe small(Method method = Method::full) {
    Recipe recipe;
    recipe.method = method;
    recipe.batch = 2;
    recipe.seq = 12;
    return recipe;
  }
};

INSTANTIATE_TEST_SUITE_P(All, TracedFamilies, testing::ValuesIn(tiny::kFamilies),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(TracedFamilies, AreAllHere) {
  for (const Family& family : families()) {
    const std::string key = std::string("\"model_type\":\"") + family.model_type + "\"";
    const bool here = std::any_of(std::begin(tiny::kFamilies), std::end(tiny::kFamilies),
                                  [&](const auto& f) { return std::string(f.config).find(key) != std::string::npos; });
    EXPECT_EQ(here, family.style.traced) << family.model_type;
  }
}

TEST_P(TracedFamilies, MakeTheParametersThatAreCounted) {
  std::uint64_t sum = 0;
  const Trace trace = traced(small());
  for (const Parameter& parameter : trace.parameters)
    sum += trace.storages[parameter.storage].shape.numel();
  EXPECT_EQ(sum, parameter_count(config()));
}

TEST_P(TracedFamilies, PutAdaptersOnEveryLinearLayerThatCanBeNamed) {
  Recipe recipe = small(Method::lora);
  std::size_t apart = 0;
  std::vector<std::string_view> names = linear_names(config());
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  const auto adapters = [](const Trace& trace) {
    return static_cast<std::size_t>(std::count_if(trace.parameters.begin(), trace.parameters.end(),
                                                  [](const Parameter& p) { return p.trainable; }));
  };
  const ExpertTargets* experts = expert_targets(config());
  for (const std::string_view name : names) {
    recipe.targets = {std::string(name)};
    if (experts != nullptr && name == experts->up) continue;  // together with its gate, or not at all
    if (experts != nullptr && name == experts->gate) recipe.targets.emplace_back(experts->up);
    const std::size_t made = adapters(traced(recipe));
    EXPECT_GT(made, 0u) << name;
    apart += made;
  }
  if (experts != nullptr && experts->router[0] == '\0') return;  // all-linear is refused, for the router's sake
  if (config().style.routing == Routing::every_expert) return;
  recipe.targets = {"all-linear"};
  EXPECT_EQ(adapters(traced(recipe)), apart);
}

TEST_P(TracedFamilies, TakeMoreMemoryForMoreTokens) {
  const auto peak = [](std::uint64_t batch, std::uint64_t seq) {
    Recipe recipe = small();
    recipe.batch = batch;
    recipe.seq = seq;
    return replay(traced(recipe), {}).peak_tensor_bytes;
  };
  EXPECT_GT(peak(4, 12), peak(2, 12));
  if (config().architecture == Architecture::vit) return;  // its tokens are its images'
  EXPECT_GT(peak(2, 24), peak(2, 12));
}

// The report's config is a config.json of the same model.
TEST_P(TracedFamilies, AreReadBackFromTheirReport) {
  const Result<Prediction> prediction = predict_run(config(), small());
  ASSERT_EQ(outcome(prediction), "ok");
  const Json report = parsed(write_report(prediction.value(), 2));
  const Result<ModelConfig> again = model_config_from(at(report, "model.config"));
  ASSERT_EQ(outcome(again), "ok");
  const Result<Prediction> same = predict_run(again.value(), small());
  ASSERT_EQ(outcome(same), "ok");
  EXPECT_EQ(same.value().params, prediction.value().params);
  EXPECT_EQ(same.value().replay.peak_tensor_bytes, prediction.value().replay.peak_tensor_bytes);
}

TEST(UntracedFamilies, AreCountedAndRefusedByName) {
  for (const char* type : {"qwen2_vl_text", "qwen2_5_vl_text"}) {
    const Result<ModelConfig> config = read_model_config(R"({"model_type":")" + std::string(type) + "\"}");
    ASSERT_EQ(outcome(config), "ok") << type;
    EXPECT_GT(parameter_count(config.value()), 0u) << type;
    const Result<Prediction> prediction = predict_run(config.value(), {});
    EXPECT_EQ(outcome(prediction), "unsupported_recipe where=model_type read=" + std::string(type) +
                                       " expected=family_step_not_modelled nearest=");
  }
}

TEST(UntracedFamilies, RefuseAVariantThatNoModuleBuilds) {
  for (const char* text :
       {R"({"model_type":"olmo","clip_qkv":8.0})", R"({"model_type":"cohere","use_qk_norm":true})",
        R"({"model_type":"mixtral","output_router_logits":true})",
        R"({"model_type":"mixtral","router_jitter_noise":0.1})", R"({"model_type":"opt","do_layer_norm_before":false})",
        R"({"model_type":"opt","word_embed_proj_dim":512})", R"({"model_type":"falcon","alibi":true})",
        R"({"model_type":"falcon","parallel_attn":false})", R"({"model_type":"deepseek_v2"})",
        R"({"model_type":"internlm2","pretraining_tp":2})", R"({"model_type":"gptj","rotary_dim":null})",
        R"({"model_type":"internlm2","attn_implementation":"flex_attention"})",
        R"({"model_type":"t5","architectures":["T5EncoderModel"]})",
        R"({"model_type":"t5","feed_forward_proj":"mish"})",
        R"({"model_type":"bloom","apply_residual_connection_post_layernorm":true})"}) {
    const Result<ModelConfig> config = read_model_config(text);
    ASSERT_EQ(outcome(config), "ok") << text;
    EXPECT_EQ(config.value().untraced, "variant_step_not_modelled") << text;
  }
}

TEST(Llama4, RefusesWhatItsRouterAndItsChunksDoNotTake) {
  const auto said = [](const Recipe& recipe) {
    const Result<ModelConfig> config =
        read_model_config(R"({"model_type":"llama4_text","num_hidden_layers":2,"attention_chunk_size":64})");
    return outcome(predict_run(config.value(), recipe));
  };
  const std::string prefix = "unsupported_recipe where=";
  Recipe recipe;
  recipe.seq = 96;
  EXPECT_EQ(said(recipe), "ok");
  recipe.attention = Attention::flash;
  EXPECT_EQ(said(recipe), prefix + "attention read=flash expected=flash_has_no_chunks nearest=");
  recipe.attention = Attention::math;
  EXPECT_EQ(said(recipe), prefix + "attention read=math expected=sliding_window_mask_not_modelled nearest=");
  recipe.attention = Attention::sdpa;
  recipe.method = Method::lora;
  EXPECT_EQ(said(recipe), prefix + "targets read=all-linear expected=router_takes_no_adapter nearest=");
  recipe.targets = {"o_proj"};
  EXPECT_EQ(said(recipe), "ok");
  recipe.method = Method::qlora;
  EXPECT_EQ(said(recipe), prefix + "method read=qlora expected=router_cannot_be_quantised nearest=");
}

TEST(DeepSeek, RefusesAdaptersOnItsRouter) {
  const auto said = [](const char* type, Method method, std::vector<std::string> targets) {
    const Result<ModelConfig> config = read_model_config(R"({"model_type":")" + std::string(type) +
                                                         R"(","num_hidden_layers":1,"num_experts_per_tok":2})");
    Recipe recipe;
    recipe.method = method;
    recipe.seq = 16;
    recipe.targets = std::move(targets);
    return outcome(predict_run(config.value(), recipe));
  };
  const std::string adapters =
      "unsupported_recipe where=targets read=all-linear expected=router_takes_no_adapter nearest=";
  EXPECT_EQ(said("deepseek_v3", Method::lora, {"all-linear"}), adapters);
  EXPECT_EQ(said("deepseek_v2", Method::lora, {"all-linear"}), adapters);
  EXPECT_EQ(said("deepseek_v2", Method::qlora, {"o_proj"}),
            "unsupported_recipe where=method read=qlora expected=router_cannot_be_quantised nearest=");
  EXPECT_EQ(said("deepseek_v3", Method::lora, {"o_proj"}), "ok");
}

TEST(Encoders, AreTracedWithTheirMaskedLanguageHeadAlone) {
  const auto said = [](const char* text, const Recipe& recipe) {
    const Result<ModelConfig> config = read_model_config(text);
    return outcome(predict_run(config.value(), recipe));
  };
  const char* masked = R"({"model_type":"bert","architectures":["BertForMaskedLM"],"num_hidden_layers":2})";
  Recipe recipe;
  recipe.seq = 512;
  EXPECT_EQ(said(masked, recipe), "ok");
  EXPECT_EQ(said(R"({"model_type":"bert"})", recipe),
            "unsupported_recipe where=model_type read=bert expected=variant_step_not_modelled nearest=");
  EXPECT_EQ(said(R"({"model_type":"bert","architectures":["BertForMaskedLM"],"hidden_size":770})", recipe),
            "unsupported_recipe where=model_type read=bert expected=variant_step_not_modelled nearest=");
  EXPECT_EQ(said(R"({"model_type":"bert","architectures":["BertForMaskedLM"],"is_decoder":true})", recipe),
            "unsupported_recipe where=model_type read=bert expected=variant_step_not_modelled nearest=");
  recipe.method = Method::qlora;
  EXPECT_EQ(said(masked, recipe),
            "unsupported_recipe where=method read=qlora expected=encoder_base_not_quantised nearest=");
  recipe.method = Method::full;
  recipe.seq = 513;
  EXPECT_EQ(said(masked, recipe), "unsupported_recipe where=seq read=513 expected=seq_beyond_positions nearest=");
  EXPECT_EQ(
      said(R"({"model_type":"roberta","architectures":["RobertaForMaskedLM"],"max_position_embeddings":514})", recipe),
      "unsupported_recipe where=seq read=513 expected=seq_beyond_positions nearest=");
}

TEST(LearnedPositions, EndSomewhere) {
  const Result<ModelConfig> config = read_model_config(R"({"model_type":"gpt2"})");
  Recipe recipe;
  recipe.seq = 1025;
  EXPECT_EQ(outcome(predict_run(config.value(), recipe)),
            "unsupported_recipe where=seq read=1025 expected=seq_beyond_positions nearest=");
}

}  // namespace
}  // namespace ledger
