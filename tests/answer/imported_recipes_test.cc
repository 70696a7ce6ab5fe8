// Recipes that the page makes of frameworks' published files (web/test/importing_sharded.test.mjs holds it to the same
// list) are recipes that are computed.
#include <gtest/gtest.h>

#include "core/answer/prediction.h"
#include "tests/answer/json_path.h"
#include "tests/config/fixtures.h"
#include "tests/training/runs.h"

namespace ledger {
namespace {

TEST(ImportedRecipes, AreAllComputed) {
  const Json document = parsed(fixture("imported_recipes.json"));
  const ModelConfig config = model_config_from(parsed(fixture("configs/llama-3.1-8b.json"))).value();
  std::size_t offloaded = 0;
  for (const auto& [name, json] : document.members()) {
    const Result<Recipe> recipe = recipe_from(json);
    ASSERT_TRUE(recipe.ok()) << name;
    const Result<Prediction> p = predict_run(config, recipe.value());
    ASSERT_TRUE(p.ok()) << name << ": " << p.problem().where << " " << p.problem().expected;
    EXPECT_EQ(p.value().recipe.method, Method::qlora) << name;
    const bool offloads = recipe.value().offload == Offload::params;
    offloaded += offloads;
    EXPECT_EQ(host_ledger(p.value().trace).empty(), !offloads) << name;
  }
  EXPECT_EQ(offloaded, 3u);
}

}  // namespace
}  // namespace ledger
