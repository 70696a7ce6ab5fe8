// PEFT's adapter_config.json, dropped where a recipe is meant, fills the LoRA part of it.
#include "core/config/adapter_config.h"

#include <gtest/gtest.h>

#include "core/config/recipe.h"
#include "tests/base/show_problem.h"

namespace ledger {
namespace {

TEST(AdapterConfig, FillsTheLoraPartOfTheRecipe) {
  const Result<Recipe> recipe = read_recipe(
      R"({"peft_type":"LORA","r":64,"lora_alpha":16,"lora_dropout":0.05,"target_modules":["q_proj","v_proj"],)"
      R"("bias":"none","task_type":"CAUSAL_LM","modules_to_save":null,"use_dora":true,"base_model_name_or_path":"x"})");
  ASSERT_EQ(outcome(recipe), "ok");
  EXPECT_EQ(recipe.value().method, Method::lora);
  EXPECT_EQ(recipe.value().rank, 64u);
  EXPECT_EQ(recipe.value().targets, (std::vector<std::string>{"q_proj", "v_proj"}));
  EXPECT_EQ(recipe.value().lora_dropout, 0.05);
  EXPECT_TRUE(recipe.value().dora);
}

TEST(AdapterConfig, LeavesTheRestOfTheRecipeAsItIs) {
  Recipe base;
  base.batch = 7;
  base.seq = 4096;
  const Result<Recipe> recipe = read_recipe(R"({"peft_type":"LORA","target_modules":"all-linear"})", base);
  ASSERT_EQ(outcome(recipe), "ok");
  EXPECT_EQ(recipe.value().batch, 7u);
  EXPECT_EQ(recipe.value().seq, 4096u);
  EXPECT_EQ(recipe.value().targets, std::vector<std::string>{"all-linear"});
}

TEST(AdapterConfig, KeepsAQuantisedBaseQuantised) {
  Recipe base;
  base.method = Method::qlora;
  EXPECT_EQ(read_recipe(R"({"peft_type":"LORA","r":8})", base).value().method, Method::qlora);
}

TEST(AdapterConfig, NamesWhatARecipeCannotSay) {
  EXPECT_EQ(outcome(read_recipe(R"({"peft_type":"IA3"})")),
            "not_one_of where=peft_type read=\"IA3\" expected=LORA nearest=LORA");
  EXPECT_EQ(
      outcome(read_recipe(R"({"peft_type":"LORA","modules_to_save":["lm_head"]})")),
      "unsupported_recipe where=modules_to_save read=[\"lm_head\"] expected=adapter_setting_not_modelled nearest=");
}

}  // namespace
}  // namespace ledger
