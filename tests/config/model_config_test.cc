// Real config.json files read with exact parameter counts, and every way a config can be wrong is a Problem that names
// it.
#include "core/config/model_config.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/config/families.h"
#include "tests/base/show_problem.h"
#include "tests/config/fixtures.h"

namespace ledger {
namespace {

// A small valid config with `extra` members; later keys win.
std::string llama(const std::string& extra = "") {
  return R"({"model_type":"llama","hidden_size":64,"num_attention_heads":4,"num_hidden_layers":2,"intermediate_size":96,)"
         R"("vocab_size":100)" +
         (extra.empty() ? "" : "," + extra) + "}";
}

TEST(ModelConfigFixtures, ParameterCountsAreExact) {
  const Result<Json> cases = parse_json(fixture("configs/cases.json"));
  ASSERT_EQ(outcome(cases), "ok");
  ASSERT_GE(cases.value().items().size(), 6u);
  for (const Json& c : cases.value().items()) {
    const std::string file(*c.find("file")->as_string());
    const Result<ModelConfig> config = read_model_config(fixture("configs/" + file));
    ASSERT_EQ(outcome(config), "ok") << file;
    EXPECT_EQ(config.value().model_type, *c.find("family")->as_string()) << file;
    EXPECT_EQ(parameter_count(config.value()), *c.find("params")->as_unsigned()) << file;
    EXPECT_TRUE(config.value().notes.empty()) << file;
  }
}

TEST(ModelConfigFixtures, EveryTruncationIsAProblem) {
  const std::string text = fixture("configs/llama-3.1-8b.json");
  const std::size_t end = text.find_last_of('}');
  ASSERT_NE(end, std::string::npos);
  for (std::size_t bytes = 0; bytes <= end; ++bytes) {
    const Result<ModelConfig> config = read_model_config(text.substr(0, bytes));
    ASSERT_FALSE(config.ok()) << bytes;
    const ProblemCode code = config.problem().code;
    ASSERT_TRUE(code == ProblemCode::json_syntax || code == ProblemCode::wrong_file) << bytes;
  }
}

TEST(ModelConfig, ALlamaWithoutKeysIsTheClassDefault) {
  const Result<ModelConfig> result = read_model_config(R"({"model_type":"llama"})");
  ASSERT_EQ(outcome(result), "ok");
  const ModelConfig& config = result.value();
  EXPECT_EQ(config.vocab_size, 32000u);
  EXPECT_EQ(config.hidden_size, 4096u);
  EXPECT_EQ(config.intermediate_size, 11008u);
  EXPECT_EQ(config.num_hidden_layers, 32u);
  EXPECT_EQ(config.num_attention_heads, 32u);
  EXPECT_EQ(config.num_key_value_heads, 32u);
  EXPECT_EQ(config.head_dim, 128u);
  EXPECT_EQ(config.max_position_embeddings, 2048u);
  EXPECT_EQ(config.rms_norm_eps, 1e-6);
  EXPECT_EQ(config.rope_theta, 10000);
  EXPECT_FALSE(config.tie_word_embeddings);
  EXPECT_FALSE(config.attention_bias);
  EXPECT_FALSE(config.mlp_bias);
  EXPECT_EQ(parameter_count(config), 6738415616u);
}

TEST(ModelConfig, NullIsAbsent) {
  const Result<ModelConfig> config = read_model_config(
      R"({"model_type":"llama","num_key_value_heads":null,"head_dim":null,"rope_scaling":null,"hidden_act":null,)"
      R"("rope_parameters":null,"quantization_config":null,"tie_word_embeddings":null})");
  ASSERT_EQ(outcome(config), "ok");
  EXPECT_EQ(parameter_count(config.value()), 6738415616u);
  EXPECT_TRUE(config.value().notes.empty());
}

TEST(ModelConfig, KeyValueHeadsFollowTheAttentionHeads) {
  EXPECT_EQ(read_model_config(llama()).value().num_key_value_heads, 4u);
  EXPECT_EQ(read_model_config(llama(R"("num_key_value_heads":2)")).value().num_key_value_heads, 2u);
}

TEST(ModelConfig, HeadDimMayStandAlone) {
  const Result<ModelConfig> config = read_model_config(llama(R"("hidden_size":65,"head_dim":16)"));
  ASSERT_EQ(outcome(config), "ok");
  EXPECT_EQ(config.value().head_dim, 16u);
}

TEST(ModelConfig, BiasesAndTyingCount) {
  const auto count = [](const std::string& extra) { return parameter_count(read_model_config(llama(extra)).value()); };
  const std::uint64_t plain = count("");
  EXPECT_EQ(plain, 2u * 100 * 64 + 64 + 2 * (4u * 64 * 64 + 3 * 64 * 96 + 2 * 64));
  EXPECT_EQ(count(R"("tie_word_embeddings":true)"), plain - 100 * 64);
  EXPECT_EQ(count(R"("attention_bias":true)"), plain + 2 * (4 * 64));
  EXPECT_EQ(count(R"("mlp_bias":true)"), plain + 2 * (96 + 96 + 64));
  EXPECT_EQ(count(R"("num_key_value_heads":1)"), plain - 2 * (2u * 48 * 64));
}

struct RopeCase {
  const char* name;
  const char* extra;
  const char* type;
  double theta, factor;
};

TEST(ModelConfig, RopeIsReadInOldAndNewSpelling) {
  const RopeCase cases[] = {
      {"none", R"("x":1)", "default", 10000, 1},
      {"theta", R"("rope_theta":5e5)", "default", 500000, 1},
      {"theta as integer", R"("rope_theta":500000)", "default", 500000, 1},
      {"oldest", R"("rope_scaling":{"type":"linear","factor":4})", "linear", 10000, 4},
      {"old", R"("rope_scaling":{"rope_type":"llama3","factor":8.0},"rope_theta":5e5)", "llama3", 500000, 8},
      {"new", R"("rope_parameters":{"rope_type":"llama3","factor":32,"rope_theta":5e5})", "llama3", 500000, 32},
      {"new wins", R"("rope_theta":1,"rope_parameters":{"rope_type":"default","rope_theta":2})", "default", 2, 1},
      {"both spellings of the type", R"("rope_scaling":{"type":"dynamic","rope_type":"linear","factor":2})", "linear",
       10000, 2},
  };
  for (const RopeCase& c : cases) {
    const Result<ModelConfig> config = read_model_config(llama(c.extra));
    ASSERT_EQ(outcome(config), "ok") << c.name;
    EXPECT_EQ(config.value().rope.type, c.type) << c.name;
    EXPECT_EQ(config.value().rope_theta, c.theta) << c.name;
    EXPECT_EQ(config.value().rope.factor, c.factor) << c.name;
    EXPECT_TRUE(config.value().notes.empty()) << c.name;
  }
}

TEST(ModelConfig, NotesWhatIsNotComputed) {
  const Result<ModelConfig> config = read_model_config(llama(
      R"("rope_scaling":{"rope_type":"yarn","factor":4},"quantization_config":{"quant_method":"gptq","bits":4})"));
  ASSERT_EQ(outcome(config), "ok");
  const std::vector<std::pair<std::string, std::string>> want = {{"rope_scaling_type_not_computed", "\"yarn\""},
                                                                 {"quantization_config_ignored", "\"gptq\""}};
  EXPECT_EQ(config.value().notes, want);
  EXPECT_EQ(config.value().rope.type, "default");
}

TEST(ModelConfig, LargestSizesTogetherDoNotOverflow) {
  const Result<ModelConfig> config = read_model_config(
      R"({"model_type":"llama","hidden_size":1048576,"num_attention_heads":65536,"num_key_value_heads":65536,"head_dim":4096,)"
      R"("num_hidden_layers":4096,"intermediate_size":4194304,"vocab_size":16777216,"attention_bias":true,"mlp_bias":true})");
  ASSERT_EQ(outcome(config), "ok");
  EXPECT_LT(parameter_count(config.value()), std::uint64_t{1} << 63);
}

struct Bad {
  const char* name;
  std::string text;
  std::string want;
};

void PrintTo(const Bad& bad, std::ostream* out) {
  *out << bad.name;
}

class BadConfig : public testing::TestWithParam<Bad> {};

TEST_P(BadConfig, IsNamed) {
  EXPECT_EQ(outcome(read_model_config(GetParam().text)), GetParam().want);
}

std::string out_of_range(const std::string& key, const std::string& read, const std::string& range) {
  return "out_of_range where=" + key + " read=" + read + " expected=" + range + " nearest=";
}

std::string wrong_type_of(const std::string& key, const std::string& read, const std::string& expected) {
  return "wrong_type where=" + key + " read=" + read + " expected=" + expected + " nearest=";
}

INSTANTIATE_TEST_SUITE_P(
    ModelConfig, BadConfig,
    testing::ValuesIn(std::vector<Bad>{
        {"a_quintillion_layers", llama(R"("num_hidden_layers":1000000000000000000)"),
         out_of_range("num_hidden_layers", "1000000000000000000", "1..4096")},
        {"layers_beyond_64_bits", llama(R"("num_hidden_layers":100000000000000000000000)"),
         out_of_range("num_hidden_layers", "1e+23", "1..4096")},
        {"no_layers", llama(R"("num_hidden_layers":0)"), out_of_range("num_hidden_layers", "0", "1..4096")},
        {"negative_layers", llama(R"("num_hidden_layers":-1)"), out_of_range("num_hidden_layers", "-1", "1..4096")},
        {"huge_hidden_size", llama(R"("hidden_size":1048577)"), out_of_range("hidden_size", "1048577", "1..1048576")},
        {"huge_intermediate_size", llama(R"("intermediate_size":4194305)"),
         out_of_range("intermediate_size", "4194305", "1..4194304")},
        {"no_vocabulary", llama(R"("vocab_size":0)"), out_of_range("vocab_size", "0", "1..16777216")},
        {"no_heads", llama(R"("num_attention_heads":0)"), out_of_range("num_attention_heads", "0", "1..65536")},
        {"no_key_value_heads", llama(R"("num_key_value_heads":0)"),
         out_of_range("num_key_value_heads", "0", "1..65536")},
        {"huge_head_dim", llama(R"("head_dim":4098)"), out_of_range("head_dim", "4098", "1..4096")},
        {"huge_derived_head_dim", llama(R"("hidden_size":1048576)"), out_of_range("head_dim", "262144", "1..4096")},
        {"huge_positions", llama(R"("max_position_embeddings":1e15)"),
         out_of_range("max_position_embeddings", "1e+15", "1..1073741824")},
        {"negative_eps", llama(R"("rms_norm_eps":-1e-6)"), out_of_range("rms_norm_eps", "-1e-06", "0..1")},
        {"zero_theta", llama(R"("rope_theta":0)"), out_of_range("rope_theta", "0", "2.2250738585072014e-308..1e+15")},
        {"zero_rope_factor", llama(R"("rope_scaling":{"type":"linear","factor":0})"),
         out_of_range("rope_scaling.factor", "0", "1e-06..1000000")},
        {"text_for_integer", llama(R"("hidden_size":"4096")"), wrong_type_of("hidden_size", "\"4096\"", "integer")},
        {"fraction_for_integer", llama(R"("hidden_size":64.5)"), wrong_type_of("hidden_size", "64.5", "integer")},
        {"boolean_for_integer", llama(R"("hidden_size":true)"), wrong_type_of("hidden_size", "true", "integer")},
        {"list_for_integer", llama(R"("intermediate_size":[1,2])"),
         wrong_type_of("intermediate_size", "[1,2]", "integer")},
        {"text_for_boolean", llama(R"("tie_word_embeddings":"false")"),
         wrong_type_of("tie_word_embeddings", "\"false\"", "boolean")},
        {"integer_for_boolean", llama(R"("attention_bias":0)"), wrong_type_of("attention_bias", "0", "boolean")},
        {"text_for_real", llama(R"("rms_norm_eps":"1e-6")"), wrong_type_of("rms_norm_eps", "\"1e-6\"", "number")},
        {"list_for_rope", llama(R"("rope_scaling":[1])"), wrong_type_of("rope_scaling", "[1]", "object")},
        {"integer_for_rope_type", llama(R"("rope_parameters":{"rope_type":3})"),
         wrong_type_of("rope_parameters.rope_type", "3", "string")},
        {"integer_for_model_type", R"({"model_type":7})", wrong_type_of("model_type", "7", "string")},
        {"integer_for_activation", llama(R"("hidden_act":1)"), wrong_type_of("hidden_act", "1", "string")},
        {"other_activation", llama(R"("hidden_act":"mish")"),
         "not_one_of where=hidden_act read=\"mish\" expected=silu|gelu|gelu_pytorch_tanh|gelu_new|relu|quick_gelu "
         "nearest="},
        {"hidden_size_not_divisible", llama(R"("hidden_size":66)"),
         "inconsistent_config where=hidden_size,num_attention_heads read=66,4 expected=multiple nearest="},
        {"heads_not_divisible", llama(R"("num_key_value_heads":3)"),
         "inconsistent_config where=num_attention_heads,num_key_value_heads read=4,3 expected=multiple nearest="},
        {"more_key_value_heads_than_heads", llama(R"("num_key_value_heads":8)"),
         "inconsistent_config where=num_attention_heads,num_key_value_heads read=4,8 expected=multiple nearest="},
        {"odd_head_dim", llama(R"("head_dim":15)"),
         "inconsistent_config where=head_dim read=15 expected=even nearest="},
        {"odd_derived_head_dim", llama(R"("hidden_size":60)"),
         "inconsistent_config where=head_dim read=15 expected=even nearest="},
        {"no_model_type", R"({"hidden_size":64,"num_attention_heads":4})",
         "missing_key where=model_type read= expected=" + family_names() + " nearest="},
        {"null_model_type", R"({"model_type":null,"hidden_size":64})",
         "missing_key where=model_type read= expected=" + family_names() + " nearest="},
        {"unknown_model_type", R"({"model_type":"mamba"})",
         "unknown_model_type where=model_type read=\"mamba\" expected=" + family_names() + " nearest="},
        {"mistyped_model_type", R"({"model_type":"lama"})",
         "unknown_model_type where=model_type read=\"lama\" expected=" + family_names() + " nearest=llama"},
        {"a_string", "\"llama\"", "not_an_object where= read=string expected=object nearest="},
        {"a_number", "4096", "not_an_object where= read=integer expected=object nearest="},
        {"broken_json", "{\"model_type\":\"llama\",}", "json_syntax where=1:23 read=} expected= nearest="},
        {"too_deep", std::string(100, '['), "json_too_deep where= read= expected=64 nearest="},
        {"too_large", "{\"a\":\"" + std::string(8u << 20, 'x') + "\"}",
         "json_too_large where=bytes read=8388616 expected=8388608 nearest="},
    }),
    [](const auto& test) { return std::string(test.param.name); });

TEST(Families, AreFoundByName) {
  for (const Family& family : families()) {
    EXPECT_EQ(find_family(family.model_type), &family);
    EXPECT_NE(std::string(family.source), "");
    EXPECT_EQ(outcome(read_model_config(R"({"model_type":")" + std::string(family.model_type) + "\"}")), "ok");
  }
  EXPECT_EQ(find_family("nothing"), nullptr);
}

}  // namespace
}  // namespace ledger
