// The door: request JSON in, answer JSON out, and every mistake an answer of its own kind.
#include "core/api.h"

#include <gtest/gtest.h>

#include "core/config/gpu.h"
#include "core/config/recipe.h"
#include "tests/answer/json_path.h"

namespace ledger {
namespace {

constexpr const char* kConfig =
    R"({"model_type":"llama","hidden_size":64,"intermediate_size":128,"num_attention_heads":4,"vocab_size":99,"num_hidden_layers":1})";

std::string request(const std::string& rest = "") {
  return std::string("{\"config\":") + kConfig + rest + "}";
}

TEST(Api, PredictsWithTheDefaultRecipe) {
  const Json answer = parsed(predict(request()));
  EXPECT_EQ(text(answer, "report.kind"), "predicted");
  EXPECT_EQ(text(answer, "report.recipe.method"), "full");
  EXPECT_EQ(number(answer, "report.recipe.seq"), 2048u);
}

TEST(Api, TheSameRequestIsAnsweredWithTheSameBytes) {
  EXPECT_EQ(predict(request()), predict(request()));
  EXPECT_EQ(predict(request()), predict(request(R"(,"recipe":null)")));
  EXPECT_EQ(predict(request()), predict(request(R"(,"recipe":{},"timeline_points":400)")));
}

// Pages hand over what was pasted, so that positions in problems refer to that text.
TEST(Api, DocumentsMayComeAsText) {
  JsonWriter out;
  out.begin_object().member("config", kConfig).member("recipe", R"({"batch":2})").end_object();
  EXPECT_EQ(predict(out.take()), predict(request(R"(,"recipe":{"batch":2})")));
}

struct Mistake {
  const char* name;
  std::string request;
  const char* code;
  const char* where;
};

TEST(Api, MistakesAreProblems) {
  const Mistake cases[] = {
      {"nothing", "", "json_syntax", "1:1"},
      {"no JSON", "hello", "json_syntax", "1:1"},
      {"no config", "{}", "missing_key", "config"},
      {"config cut short", R"({"config":"{\"model_type\":"})", "json_syntax", "1:15"},
      {"config is a list", R"({"config":[1]})", "wrong_file", ""},
      {"unknown family", R"({"config":{"model_type":"gpt17"}})", "unknown_model_type", "model_type"},
      {"negative size", R"({"config":{"model_type":"llama","hidden_size":-1}})", "out_of_range", "hidden_size"},
      {"recipe with a typing error", request(R"(,"recipe":{"bacth":2})"), "unknown_key", "bacth"},
      {"recipe that cannot be computed", request(R"(,"recipe":{"compile":true})"), "unsupported_recipe", "compile"},
  };
  for (const Mistake& c : cases) {
    const Json answer = parsed(predict(c.request));
    EXPECT_EQ(text(answer, "problem.code"), c.code) << c.name;
    EXPECT_EQ(text(answer, "problem.where"), c.where) << c.name;
  }
}

TEST(Api, TimelineIsAsLongAsAskedAndNeverAbsurd) {
  const auto points = [](const char* count) {
    const Json answer = parsed(predict(request(std::string(",\"timeline_points\":") + count)));
    return at(answer, "report.timeline.points").items().size();
  };
  EXPECT_LE(points("100"), 100u);
  EXPECT_GT(points("400"), points("100"));
  EXPECT_GT(points("0"), 0u);
  EXPECT_EQ(points("99999999999"), points("20000"));
}

TEST(Api, CompareAnswersProblemsToo) {
  EXPECT_EQ(text(parsed(compare("")), "problem.code"), "json_syntax");
  EXPECT_EQ(text(parsed(compare("{}")), "problem.where"), "measured");
  EXPECT_EQ(text(parsed(compare(R"({"measured":{"kind":"measured"}})")), "problem.code"), "schema_version");
}

TEST(Api, TheCatalogueListsEveryGpuAndKey) {
  const Json answer = parsed(catalogue());
  EXPECT_EQ(at(answer, "gpus").items().size(), gpus().size());
  EXPECT_EQ(at(answer, "recipe_keys").items().size(), recipe_keys().size());
  EXPECT_EQ(text(answer, "version"), version());
}

}  // namespace
}  // namespace ledger
