// What the core can say is documented: every id has its place in docs/.
#include <gtest/gtest.h>

#include <set>

#include "core/answer/report.h"
#include "tests/answer/json_path.h"
#include "tests/config/fixtures.h"
#include "tests/training/runs.h"

namespace ledger {
namespace {

std::string document(const char* name) {
  const std::string text = fixture(std::string("../../docs/") + name);
  EXPECT_NE(text, "") << name;
  return text;
}

bool names(const std::string& text, const std::string& id) {
  return text.find("`" + id + "`") != std::string::npos;
}

TEST(Docs, EveryProblemCodeIsExplained) {
  const std::string text = document("problems.md");
  for (std::size_t i = 0; i < static_cast<std::size_t>(ProblemCode::count_); ++i) {
    const std::string id = problem_id(static_cast<ProblemCode>(i));
    EXPECT_NE(text.find("| `" + id + "` |"), std::string::npos) << id;
  }
}

TEST(Docs, EveryReasonOfARefusalIsExplained) {
  const std::string text = document("problems.md");
  for (const auto& [name, config] : small_configs()) {
    for (const RecipeKey& key : recipe_keys()) {
      std::vector<std::string> values(key.choices.begin(), key.choices.end());
      values.insert(values.end(), {"true", "2", "nothing"});
      for (const std::string& value : values) {
        const Result<Recipe> recipe = with_recipe_text({}, key.name, value);
        const auto refusal = recipe.ok() ? unsupported(config, recipe.value()) : std::nullopt;
        if (refusal) {
          EXPECT_TRUE(names(text, refusal->expected)) << refusal->expected;
        }
      }
    }
  }
}

TEST(Docs, WhatAReportLeavesOutHasAParagraph) {
  const std::string text = document("not-modelled.md");
  std::set<std::string> ids;
  for (const NamedRun& run : small_runs()) {
    const Json report = parsed(write_report(predict_run(run.config, run.recipe).value(), 2));
    for (const Json& id : at(report, "not_modelled").items())
      ids.insert(std::string(id.as_string().value_or("")));
  }
  EXPECT_FALSE(ids.empty());
  for (const std::string& id : ids)
    EXPECT_NE(text.find("## `" + id + "`"), std::string::npos) << id;
}

TEST(Docs, EveryLetterAndCategoryStandsInTheMemoryModel) {
  const std::string text = document("memory-model.md");
  for (std::size_t i = 1; i < static_cast<std::size_t>(Sym::count_); ++i) {
    const std::string name = info(static_cast<Sym>(i)).name;
    EXPECT_NE(text.find(name.substr(0, name.find('*'))), std::string::npos) << name;
  }
  for (std::size_t i = 0; i < kCategories; ++i) {
    EXPECT_NE(text.find(std::string("| ") + category_name(static_cast<Category>(i)) + " |"), std::string::npos);
  }
}

}  // namespace
}  // namespace ledger
