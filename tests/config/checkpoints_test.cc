// Parameter counts of published checkpoints, exact, from as much of the file as a configuration class leaves in it.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/config/families.h"
#include "core/config/model_config.h"
#include "tests/base/show_problem.h"
#include "tests/config/fixtures.h"

namespace ledger {
namespace {

const std::vector<Json>& rows() {
  static const Json file = parse_json(fixture("configs/checkpoints.json")).value();
  return file.find("rows")->items();
}

std::uint64_t counted(const Json& config, const std::string& id) {
  const Result<ModelConfig> read = model_config_from(config);
  EXPECT_EQ(outcome(read), "ok") << id;
  return read.ok() ? parameter_count(read.value()) : 0;
}

bool same(const Json& a, const Json& b) {
  if (a.as_real() && b.as_real()) return *a.as_real() == *b.as_real();
  return a.type() == b.type() && a.brief() == b.brief();
}

// What PretrainedConfig.to_diff_dict leaves out: every key that equals the class's default.
Json without_defaults(const Json& config) {
  const Family* family = find_family(*config.find("model_type")->as_string());
  const Json defaults = parse_json(family->defaults).value();
  std::vector<Json::Member> members = config.members();
  std::erase_if(members, [&](const Json::Member& member) {
    const Json* value = defaults.find(member.first);
    return value != nullptr && !value->is_object() && same(*value, member.second);
  });
  return Json::of_object(std::move(members));
}

TEST(Checkpoints, AreCountedExactly) {
  ASSERT_GE(rows().size(), 132u);
  for (const Json& row : rows()) {
    const std::string id(*row.find("id")->as_string());
    EXPECT_EQ(counted(*row.find("config"), id), row.find("params")->as_unsigned()) << id;
  }
}

TEST(Checkpoints, AreCountedExactlyWithoutTheKeysThatEqualADefault) {
  std::size_t shorter = 0;
  for (const Json& row : rows()) {
    const std::string id(*row.find("id")->as_string());
    const Json less = without_defaults(*row.find("config"));
    shorter += less.members().size() < row.find("config")->members().size() ? 1 : 0;
    EXPECT_EQ(counted(less, id), row.find("params")->as_unsigned()) << id;
  }
  EXPECT_GT(shorter, 90u);
}

TEST(Checkpoints, CoverEveryFamily) {
  for (const Family& family : families()) {
    const std::string name = family.model_type;
    if (name.ends_with("_vl_text")) continue;  // inside qwen2_vl and qwen2_5_vl
    EXPECT_TRUE(std::any_of(rows().begin(), rows().end(), [&](const Json& row) {
      return row.find("config")->find("model_type")->as_string() == std::optional<std::string_view>(name);
    })) << name;
  }
}

TEST(Checkpoints, ExtraKeysAndAQuantizedCheckpointCountTheSame) {
  for (const Json& row : rows()) {
    std::vector<Json::Member> members = row.find("config")->members();
    members.emplace_back("quantization_config",
                         Json::of_object({{"quant_method", Json::of_string("gptq")}, {"bits", Json::of_unsigned(4)}}));
    members.emplace_back("torch_dtype", Json::of_string("bfloat16"));
    members.emplace_back("some_future_key", Json::of_object({}));
    const std::string id(*row.find("id")->as_string());
    const Result<ModelConfig> read = model_config_from(Json::of_object(std::move(members)));
    ASSERT_EQ(outcome(read), "ok") << id;
    EXPECT_EQ(parameter_count(read.value()), row.find("params")->as_unsigned()) << id;
    EXPECT_TRUE(std::any_of(read.value().notes.begin(), read.value().notes.end(), [](const auto& note) {
      return note.first == "quantization_config_ignored";
    })) << id;
  }
}

// --- variants of a family that the published checkpoints above do not show -------------------------------------------

struct Variant {
  const char* name;
  const char* config;
  const char* changed;
  std::int64_t difference;
};

void PrintTo(const Variant& variant, std::ostream* out) {
  *out << variant.name;
}

class Variants : public testing::TestWithParam<Variant> {};

TEST_P(Variants, CountWhatTheyAdd) {
  const std::string base(GetParam().config);
  const std::string changed = base.substr(0, base.size() - 1) + "," + GetParam().changed + "}";
  const auto count = [](const std::string& text) {
    const Result<ModelConfig> read = read_model_config(text);
    EXPECT_EQ(outcome(read), "ok") << text;
    return read.ok() ? static_cast<std::int64_t>(parameter_count(read.value())) : 0;
  };
  EXPECT_EQ(count(changed) - count(base), GetParam().difference);
}

INSTANTIATE_TEST_SUITE_P(
    Checkpoints, Variants,
    testing::Values(
        Variant{"phi_qk_layernorm", R"({"model_type":"phi"})", R"("qk_layernorm":true)", 24 * 2 * 2 * 64},
        Variant{"neox_without_attention_bias", R"({"model_type":"gpt_neox"})", R"("attention_bias":false)",
                -44 * 4 * 6144},
        Variant{"falcon_biases", R"({"model_type":"falcon"})", R"("bias":true)",
                32 * (4544 + 2 * 64 + 4544 + 4 * 4544 + 4544)},
        Variant{"falcon_sequential", R"({"model_type":"falcon"})", R"("parallel_attn":false)", 32 * 2 * 4544},
        Variant{"falcon_one_norm", R"({"model_type":"falcon","new_decoder_architecture":true,"num_kv_heads":1})",
                R"("num_ln_in_parallel_attn":1)", -32 * 2 * 4544},
        Variant{"starcoder2_without_bias", R"({"model_type":"starcoder2"})", R"("use_bias":false)",
                -30 * (3072 + 2 * 256 + 3072 + 12288 + 3072)},
        Variant{"opt_without_affine_norms", R"({"model_type":"opt"})", R"("layer_norm_elementwise_affine":false)",
                -(12 * 4 * 768 + 2 * 768)},
        Variant{"qwen_dense_layers", R"({"model_type":"qwen3_moe"})", R"("mlp_only_layers":[0,5])",
                2 * (3 * 2048LL * 6144 - (2048 * 128 + 128LL * 3 * 2048 * 768))},
        Variant{"deepseek_uncompressed_queries", R"({"model_type":"deepseek_v3"})", R"("q_lora_rank":null)",
                61 * (7168LL * 128 * 192 - (7168LL * 1536 + 1536 + 1536LL * 128 * 192))},
        Variant{"deepseek_without_shared_experts", R"({"model_type":"deepseek_v3"})", R"("n_shared_experts":null)",
                -58 * 3 * 7168LL * 2048},
        Variant{"mistral_null_heads", R"({"model_type":"mistral"})", R"("num_key_value_heads":null)",
                32 * 2 * 4096LL * (4096 - 1024)},
        Variant{"t5_gated", R"({"model_type":"t5"})", R"("feed_forward_proj":"gated-gelu")", 12 * 512 * 2048},
        Variant{"llava_two_layers_of_features", R"({"model_type":"llava"})", R"("vision_feature_layer":[-2,-5])",
                1024 * 4096},
        Variant{"bert_classifier", R"({"model_type":"bert"})",
                R"("architectures":["BertForSequenceClassification"],"num_labels":3)", 3 * 768 + 3}),
    [](const auto& test) { return std::string(test.param.name); });

// --- windows, and layers without rotary embedding
// ---------------------------------------------------------------------

std::string layers_of(const std::vector<bool>& layers) {
  std::string marks;
  for (const bool layer : layers)
    marks += layer ? 'x' : '.';
  return marks;
}

TEST(Windows, AreReadInEverySpelling) {
  struct Case {
    const char* name;
    const char* text;
    std::uint64_t window;
    const char* full;
  };
  const Case cases[] = {
      {"by pattern", R"({"model_type":"gemma3_text","num_hidden_layers":7,"sliding_window":512})", 512, ".....x."},
      {"by an older pattern", R"({"model_type":"gemma3_text","num_hidden_layers":4,"_sliding_window_pattern":2})", 4096,
       ".x.x"},
      {"by list",
       R"({"model_type":"gemma2","num_hidden_layers":3,)"
       R"("layer_types":["full_attention","sliding_attention","full_attention"]})",
       4096, "x.x"},
      {"every layer", R"({"model_type":"mistral","num_hidden_layers":2})", 4096, ".."},
      {"null is none", R"({"model_type":"mistral","num_hidden_layers":2,"sliding_window":null})", 0, ""},
      {"behind a switch that is off", R"({"model_type":"qwen2","num_hidden_layers":2,"sliding_window":64})", 0, ""},
      {"from a layer on",
       R"({"model_type":"qwen2","num_hidden_layers":4,"use_sliding_window":true,"max_window_layers":3})", 4096, "xxx."},
      {"from a layer that there is not",
       R"({"model_type":"qwen2","num_hidden_layers":2,"use_sliding_window":true,"max_window_layers":28})", 0, "xx"},
      {"in a family without one", R"({"model_type":"llama","num_hidden_layers":2,"sliding_window":64})", 0, ""},
  };
  for (const Case& c : cases) {
    const Result<ModelConfig> read = read_model_config(c.text);
    ASSERT_EQ(outcome(read), "ok") << c.name;
    EXPECT_EQ(read.value().sliding_window, c.window) << c.name;
    EXPECT_EQ(layers_of(read.value().full_layers), c.full) << c.name;
  }
}

TEST(LayersWithoutRotaryEmbedding, AreReadFromIntervalOrList) {
  const auto nope = [](const std::string& text) { return layers_of(read_model_config(text).value().nope_layers); };
  EXPECT_EQ(nope(R"({"model_type":"smollm3","num_hidden_layers":5})"), "...x.");
  EXPECT_EQ(nope(R"({"model_type":"smollm3","num_hidden_layers":3,"no_rope_layers":[0,1,0]})"), "x.x");
  EXPECT_EQ(nope(R"({"model_type":"cohere2","num_hidden_layers":5})"), "...x.");
  EXPECT_EQ(nope(R"({"model_type":"llama","num_hidden_layers":2,"no_rope_layers":[0,0]})"), "");
}

TEST(RotaryEmbedding, IsReadByTypeOfLayerAndInPart) {
  const ModelConfig gemma =
      read_model_config(R"({"model_type":"gemma3_text","rope_parameters":{"full_attention":{"rope_type":"linear",)"
                        R"("factor":8.0,"rope_theta":2e6},"sliding_attention":{"rope_theta":3e4}}})")
          .value();
  EXPECT_EQ(gemma.rope_theta, 2e6);
  EXPECT_EQ(gemma.rope_local_theta, 3e4);
  EXPECT_EQ(gemma.rope.factor, 8);
  EXPECT_EQ(read_model_config(R"({"model_type":"gpt_neox","rotary_pct":0.5})").value().rotary_dim, 48u);
  EXPECT_EQ(read_model_config(R"({"model_type":"phi3","partial_rotary_factor":1.0})").value().rotary_dim, 0u);
  EXPECT_EQ(read_model_config(R"({"model_type":"gptj"})").value().rotary_dim, 64u);
  EXPECT_EQ(
      outcome(read_model_config(R"({"model_type":"gemma3_text","rope_parameters":{"full_attention":{"rope_theta":0},)"
                                R"("sliding_attention":{}}})")),
      "out_of_range where=rope_parameters.full_attention.rope_theta read=0 "
      "expected=2.2250738585072014e-308..1e+15 nearest=");
}

// --- names that no table has -----------------------------------------------------------------------------------------

std::string like_llama(const std::string& rest) {
  return R"({"hidden_size":64,"num_attention_heads":4,"num_hidden_layers":2,"intermediate_size":96,"vocab_size":100,)" +
         rest + "}";
}

TEST(UnknownModelType, IsReadAsALlamaAndSaysSo) {
  const Result<ModelConfig> known = read_model_config(like_llama(R"("model_type":"llama","num_key_value_heads":2)"));
  for (const char* type : {R"("yi9")", R"("lama")"}) {
    const Result<ModelConfig> read =
        read_model_config(like_llama(R"("num_key_value_heads":2,"model_type":)" + std::string(type)));
    ASSERT_EQ(outcome(read), "ok") << type;
    EXPECT_EQ(parameter_count(read.value()), parameter_count(known.value()));
    const std::vector<std::pair<std::string, std::string>> want = {{"assumed_llama", type}};
    EXPECT_EQ(read.value().notes, want);
  }
  ASSERT_EQ(outcome(read_model_config(like_llama(R"("torch_dtype":"float16")"))), "ok") << "no model_type at all";
}

TEST(UnknownModelType, IsRefusedWhereLayersAreOfAnotherKind) {
  for (const char* key : {"num_experts", "kv_lora_rank", "text_config", "mamba_d_state"}) {
    const std::string text = like_llama(R"("model_type":"yi9",")" + std::string(key) + R"(":8)");
    const Result<ModelConfig> read = read_model_config(text);
    ASSERT_FALSE(read.ok()) << key;
    EXPECT_EQ(read.problem().code, ProblemCode::unknown_model_type) << key;
  }
}

TEST(UnknownModelType, NamesTheOneOrTwoKeysThatItLacks) {
  const Result<ModelConfig> read = read_model_config(
      R"({"model_type":"yi9","hidden_size":64,"num_hidden_layers":2,"num_attention_heads":4,"vocab_size":9})");
  EXPECT_EQ(outcome(read), "missing_key where=intermediate_size read=\"yi9\" expected=integer nearest=");
}

TEST(NestedConfigs, SayWhereTheyAreWrong) {
  EXPECT_EQ(outcome(read_model_config(R"({"model_type":"llava","text_config":{"hidden_size":-1}})")),
            "out_of_range where=text_config.hidden_size read=-1 expected=1..1048576 nearest=");
  EXPECT_EQ(outcome(read_model_config(R"({"model_type":"llava","vision_config":{"patch_size":"14"}})")),
            "wrong_type where=vision_config.patch_size read=\"14\" expected=integer nearest=");
  EXPECT_EQ(outcome(read_model_config(R"({"model_type":"llava","text_config":[1]})")),
            "wrong_type where=text_config read=[1] expected=object nearest=");
}

// A ratio so small that its inverse is no integer of 64 bits.
TEST(NestedConfigs, RefuseAnImagesRatioThatNoImageHas) {
  EXPECT_EQ(outcome(read_model_config(R"({"model_type":"llama4","vision_config":{"pixel_shuffle_ratio":1e-300}})")),
            "out_of_range where=vision_config.pixel_shuffle_ratio read=1e-300 expected=0.015625..1 nearest=");
}

TEST(LargestSizes, AreAProblemWhereTheyMultiplyBeyondReason) {
  const std::string text = R"({"model_type":"deepseek_v3","hidden_size":1048576,"num_hidden_layers":4096,)"
                           R"("n_routed_experts":65536,"moe_intermediate_size":4194304})";
  EXPECT_EQ(outcome(read_model_config(text)), "overflow where=model_type read= expected= nearest=");
  const Result<ModelConfig> ten_trillion = read_model_config(
      R"({"model_type":"deepseek_v3","hidden_size":16384,"num_hidden_layers":126,"n_routed_experts":1024})");
  ASSERT_EQ(outcome(ten_trillion), "ok");
  EXPECT_GT(parameter_count(ten_trillion.value()), 10'000'000'000'000u);
}

}  // namespace
}  // namespace ledger
