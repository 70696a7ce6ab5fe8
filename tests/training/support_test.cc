// What the core refuses: always with a reason that probe can say in words, and never by computing something else.
#include "core/training/support.h"

#include <gtest/gtest.h>

#include "probe/texts.h"
#include "tests/base/show_problem.h"
#include "tests/training/runs.h"

namespace ledger {
namespace {

using Kind = RecipeKey::Kind;

// Every recipe that differs from the default in one key.
std::vector<Recipe> one_key_off(const RecipeKey& key) {
  std::vector<std::string> texts(key.choices.begin(), key.choices.end());
  if (key.kind == Kind::flag) texts = {"true", "false"};
  if (key.kind == Kind::integer)
    texts = {std::to_string(key.low), std::to_string(std::min<std::uint64_t>(key.high, key.low + 1))};
  if (key.kind == Kind::real) texts = {"0", "0.1"};
  std::vector<Recipe> recipes;
  for (const std::string& text : texts) {
    const Result<Recipe> recipe = with_recipe_text({}, key.name, text);
    if (recipe.ok()) recipes.push_back(recipe.value());
  }
  return recipes;
}

TEST(Support, EveryValueOfEveryKeyIsTracedOrRefusedByName) {
  for (const auto& [name, config] : small_configs()) {
    for (const RecipeKey& key : recipe_keys()) {
      for (const Recipe& recipe : one_key_off(key)) {
        if (recipe.stack == Stack::course) continue;  // arithmetic, not a trace of operators
        SCOPED_TRACE(std::string(name) + " " + key.name + "=" + recipe_value(recipe, key.name));
        const std::optional<Problem> refusal = unsupported(config, recipe);
        const Result<Trace> trace = trace_step(config, recipe);
        EXPECT_EQ(trace.ok(), !refusal);
        if (!refusal) continue;
        EXPECT_EQ(outcome(trace), shown(*refusal));
        EXPECT_EQ(refusal->code, ProblemCode::unsupported_recipe);
        EXPECT_FALSE(recipe_value(recipe, refusal->where).empty()) << refusal->where << " is no recipe key";
        EXPECT_EQ(refusal->read, recipe_value(recipe, refusal->where));
        EXPECT_EQ(say(*refusal, "recipe").find(refusal->expected), std::string::npos)
            << "no sentence for " << refusal->expected;
      }
    }
  }
}

// Preparing widens a base to be trained on; int8 weights that only generate stay in a 16-bit stream.
TEST(Support, OnlyTrainingPreparesAnInt8Base) {
  EXPECT_TRUE(fp32_stream(recipe_of({{"method", "lora"}, {"weights", "int8"}})));
  EXPECT_FALSE(fp32_stream(recipe_of({{"method", "lora"}, {"weights", "int8"}, {"prepare_kbit", "false"}})));
  EXPECT_FALSE(fp32_stream(recipe_of({{"task", "generate"}, {"weights", "int8"}})));
  EXPECT_TRUE(fp32_stream(recipe_of({{"method", "qlora"}})));
}

TEST(Support, TheDefaultRecipeIsTraced) {
  for (const auto& [name, config] : small_configs())
    EXPECT_FALSE(unsupported(config, Recipe{})) << name;
}

struct Refused {
  const char* name;
  Settings settings;
  const char* where;
  const char* read;
  const char* reason;
};

TEST(Support, RefusalsNameKeyValueAndReason) {
  const Refused cases[] = {
      {"several GPUs in one key", {{"tp", "4"}}, "tp", "4", "parallelism_not_modelled"},
      {"sharding", {{"zero", "3"}}, "zero", "3", "parallelism_not_modelled"},
      {"compiled", {{"compile", "true"}}, "compile", "true", "compile_not_modelled"},
      {"offloaded", {{"offload", "params"}}, "offload", "params", "offload_not_modelled"},
      {"another stack", {{"stack", "megatron"}}, "stack", "megatron", "stack_not_modelled"},
  };
  for (const Refused& c : cases) {
    const auto refusal = unsupported(odd_llama(), recipe_of(c.settings));
    ASSERT_TRUE(refusal) << c.name;
    EXPECT_EQ(refusal->where, c.where) << c.name;
    EXPECT_EQ(refusal->read, c.read) << c.name;
    EXPECT_EQ(refusal->expected, c.reason) << c.name;
  }
}

TEST(Support, APlainStackHasNoLayersToCheckpoint) {
  const auto refusal = unsupported(plain_stack({{4, 4, true}}), recipe_of({{"checkpointing", "full"}}));
  ASSERT_TRUE(refusal);
  EXPECT_EQ(
      shown(*refusal),
      "unsupported_recipe where=checkpointing read=full expected=plain_stack_has_no_layers_to_checkpoint nearest=");
}

}  // namespace
}  // namespace ledger
