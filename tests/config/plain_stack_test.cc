#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/config/model_config.h"
#include "tests/base/show_problem.h"

namespace ledger {
namespace {

TEST(PlainStack, TheCoursesEightLinearsAreRead) {
  std::string text = R"({"layers":[)";
  for (int i = 0; i < 8; ++i)
    text += std::string(i == 0 ? "" : ",") + R"({"linear":[2048,2048]})";
  const Result<ModelConfig> config = read_model_config(text + "]}");
  ASSERT_EQ(outcome(config), "ok");
  EXPECT_EQ(config.value().architecture, Architecture::plain);
  EXPECT_EQ(config.value().model_type, "plain");
  EXPECT_EQ(config.value().layers.size(), 8u);
  EXPECT_EQ(parameter_count(config.value()), 8u * (2048u * 2048 + 2048));
}

TEST(PlainStack, BiasDefaultsToTrue) {
  const Result<ModelConfig> config = read_model_config(
      R"({"model_type":"plain","layers":[{"linear":[4,3]},{"linear":[3,2],"bias":false},{"linear":[2,1],"bias":null}]})");
  ASSERT_EQ(outcome(config), "ok");
  EXPECT_TRUE(config.value().layers[0].bias);
  EXPECT_FALSE(config.value().layers[1].bias);
  EXPECT_TRUE(config.value().layers[2].bias);
  EXPECT_EQ(parameter_count(config.value()), 15u + 6 + 3);
}

TEST(PlainStack, LayersAreCountedUpTo4096) {
  const auto stack = [](int count) {
    std::string text = R"({"layers":[)";
    for (int i = 0; i < count; ++i)
      text += std::string(i == 0 ? "" : ",") + R"({"linear":[1,1]})";
    return text + "]}";
  };
  EXPECT_EQ(outcome(read_model_config(stack(4096))), "ok");
  EXPECT_EQ(outcome(read_model_config(stack(4097))), "out_of_range where=layers read=4097 expected=1..4096 nearest=");
}

struct BadStack {
  const char* name;
  const char* text;
  const char* want;
};

TEST(PlainStack, MistakesAreNamed) {
  const BadStack cases[] = {
      {"empty", R"({"layers":[]})", "out_of_range where=layers read=0 expected=1..4096 nearest="},
      {"gap", R"({"layers":[{"linear":[4,3]},{"linear":[2,1]}]})",
       "inconsistent_config where=layers[0].linear[1],layers[1].linear[0] read=3,2 expected=equal nearest="},
      {"typing error", R"({"layers":[{"liner":[4,3]}]})",
       "unknown_key where=layers[0].liner read= expected= nearest=linear"},
      {"other key", R"({"layers":[{"linear":[4,3]}],"layer":1})",
       "unknown_key where=layer read= expected= nearest=layers"},
      {"no linear", R"({"layers":[{"bias":true}]})",
       "missing_key where=layers[0].linear read= expected=[in,out] nearest="},
      {"one size", R"({"layers":[{"linear":[4]}]})",
       "wrong_type where=layers[0].linear read=[4] expected=[in,out] nearest="},
      {"zero", R"({"layers":[{"linear":[0,1]}]})",
       "out_of_range where=layers[0].linear[0] read=0 expected=1..16777216 nearest="},
      {"too large", R"({"layers":[{"linear":[1,16777217]}]})",
       "out_of_range where=layers[0].linear[1] read=16777217 expected=1..16777216 nearest="},
      {"text", R"({"layers":[{"linear":[1,"2"]}]})",
       "wrong_type where=layers[0].linear[1] read=\"2\" expected=integer nearest="},
      {"not an object", R"({"layers":[7]})", "wrong_type where=layers[0] read=7 expected=object nearest="},
      {"bias as number", R"({"layers":[{"linear":[1,1],"bias":1}]})",
       "wrong_type where=layers[0].bias read=1 expected=boolean nearest="},
      {"no layers", R"({"model_type":"plain"})", "missing_key where=layers read= expected=array nearest="},
      {"layers of the wrong type", R"({"model_type":"plain","layers":8})",
       "wrong_type where=layers read=8 expected=array nearest="},
  };
  for (const BadStack& bad : cases)
    EXPECT_EQ(outcome(read_model_config(bad.text)), bad.want) << bad.name;
}

}  // namespace
}  // namespace ledger
