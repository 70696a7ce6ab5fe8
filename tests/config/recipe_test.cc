// The recipe's keys: every value reads, writes and reads back; every mistake is named with the nearest spelling.
#include "core/config/recipe.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "core/config/gpu.h"
#include "tests/base/show_problem.h"

namespace ledger {
namespace {

using Kind = RecipeKey::Kind;

std::string written(const Recipe& recipe) {
  JsonWriter out;
  write_recipe(out, recipe);
  return out.take();
}

// Values of a key worth trying, as flag texts.
std::vector<std::string> values_of(const RecipeKey& key) {
  switch (key.kind) {
    case Kind::choice:
    case Kind::text:
      return {key.choices.begin(), key.choices.end()};
    case Kind::flag:
      return {"true", "false"};
    case Kind::integer:
      return {std::to_string(key.low), std::to_string(key.low + 1), std::to_string(key.high)};
    case Kind::real:
      return {"0", "0.05", "1"};
    case Kind::names:
      return {"all-linear", "q_proj", "q_proj,v_proj"};
  }
  return {};
}

class EachKey : public testing::TestWithParam<std::string> {
 protected:
  const RecipeKey& key() const {
    for (const RecipeKey& each : recipe_keys()) {
      if (each.name == GetParam()) return each;
    }
    abort();
  }
};

std::vector<std::string> key_names() {
  std::vector<std::string> names;
  for (const RecipeKey& key : recipe_keys())
    names.emplace_back(key.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Recipe, EachKey, testing::ValuesIn(key_names()), [](const auto& test) { return test.param; });

TEST_P(EachKey, ReadsWritesAndReadsBackEqual) {
  for (const std::string& text : values_of(key())) {
    const Result<Recipe> set = with_recipe_text({}, key().name, text);
    ASSERT_EQ(outcome(set), "ok") << text;
    EXPECT_EQ(recipe_value(set.value(), key().name), text);
    const Result<Recipe> back = read_recipe(written(set.value()));
    ASSERT_EQ(outcome(back), "ok") << text;
    EXPECT_EQ(back.value(), set.value()) << text;
  }
}

TEST_P(EachKey, EveryValueButTheDefaultChangesTheRecipe) {
  int unchanged = 0;
  for (const std::string& text : values_of(key())) {
    unchanged += with_recipe_text({}, key().name, text).value() == Recipe{} ? 1 : 0;
  }
  EXPECT_LE(unchanged, 1);
}

TEST_P(EachKey, NullIsNotGiven) {
  const Result<Recipe> recipe = read_recipe("{\"" + GetParam() + "\":null}");
  ASSERT_EQ(outcome(recipe), "ok");
  EXPECT_EQ(recipe.value(), Recipe{});
}

TEST_P(EachKey, RefusesAnObject) {
  const Result<Recipe> recipe = read_recipe("{\"" + GetParam() + "\":{\"x\":1}}");
  ASSERT_EQ(code_of(recipe), "wrong_type");
  EXPECT_EQ(recipe.problem().where, GetParam());
  EXPECT_EQ(recipe.problem().read, "{\"x\":1}");
}

TEST(RecipeIntegers, RefuseWhatIsOutsideTheirRange) {
  for (const RecipeKey& key : recipe_keys()) {
    if (key.kind != Kind::integer) continue;
    const std::string name = key.name;
    for (const std::string& value :
         {std::to_string(key.high + 1), std::string("-1"), std::string("99999999999999999999")}) {
      const Result<Recipe> recipe = read_recipe("{\"" + name + "\":" + value + "}");
      ASSERT_EQ(code_of(recipe), "out_of_range") << name << " " << value;
      EXPECT_EQ(recipe.problem().expected, std::to_string(key.low) + ".." + std::to_string(key.high));
      EXPECT_EQ(recipe.problem().where, name);
    }
  }
}

// docs: the table of the recipe. A key that moves or changes its default changes links and reports.
TEST(Recipe, DefaultsAndOrderAreTheContracts) {
  EXPECT_EQ(
      written({}),
      R"({"stack":"hf","method":"full","precision":"bf16","autocast":false,"optimizer":"adamw_fused","batch":1,)"
      R"("seq":2048,"decoder_seq":0,"grad_accum":1,"attention":"sdpa","transformer_impl":"transformer_engine",)"
      R"("checkpointing":"none",)"
      R"("recompute_method":"uniform","recompute_num_layers":1,"loss":"full","liger":false,"compile":false,)"
      R"("float8":false,"float8_all_gather":false,)"
      R"("keep_outputs":false,"images":1,"image_height":0,"image_width":0,"freeze_vision_tower":false,)"
      R"("rank":16,"targets":"all-linear","lora_dropout":0,"adapter_dtype":"fp32","dora":false,)"
      R"("double_quant":true,"prepare_kbit":true,"task":"training",)"
      R"("weights":"unquantised","new_tokens":128,"kv_cache":"dynamic","prefill_logits":"last","no_grad":true,"dp":1,"tp":1,"pp":1,"cp":1,"cp_comm_type":"auto","cp_a2a_ranks":2,"ep":1,"etp":0,"sequence_parallel":false,"zero":0,)"
      R"("reduce_bucket_size":0,"prefetch_bucket_size":0,"param_persistence_threshold":0,"max_live_parameters":1000000000,)"
      R"("max_reuse_distance":1000000000,"sub_group_size":1000000000,"overlap_comm":"auto","reduce_scatter":true,"deepspeed":"0.19",)"
      R"("pipeline_schedule":"1f1b","num_layers_per_virtual_pipeline_stage":1,"decoder_first_pipeline_num_layers":0,)"
      R"("decoder_last_pipeline_num_layers":0,"micro_batches":1,"fsdp":0,"units":"layers","reshard_after_forward":true,"fsdp_activation_checkpointing":false,)"
      R"("param_dtype":"bf16","reduce_dtype":"fp32","ddp_bucket_view":false,"offload":"none","gpu":"h100-80gb",)"
      R"("memory_limit_bytes":0,"allocator":"torch"})");
}

TEST(Recipe, SpellingsAreTheContracts) {
  const auto spellings = [](const char* name) {
    std::string all;
    for (const RecipeKey& key : recipe_keys()) {
      if (key.name != std::string(name)) continue;
      for (const char* choice : key.choices)
        all += std::string(all.empty() ? "" : " ") + choice;
    }
    return all;
  };
  EXPECT_EQ(
      spellings("stack"),
      "hf hf-4 torchtune torchtitan torchtitan-0.2.0 torchtitan-0.1 torchtitan-0.0.2 litgpt megatron native course");
  EXPECT_EQ(spellings("precision"), "bf16 amp-bf16 amp-fp16 fp32 megatron-bf16 megatron-bf16-bf16grad");
  EXPECT_EQ(spellings("optimizer"),
            "adamw_fused adamw_foreach adamw_forloop adamw_8bit paged_adamw_8bit adamw_ao_8bit adamw_ao_4bit sgd "
            "sgd_momentum adafactor_torch adafactor_hf lion muon galore_adamw");
  EXPECT_EQ(spellings("attention"), "sdpa flash efficient math eager cudnn");
  EXPECT_EQ(spellings("checkpointing"), "none full full-reentrant selective offload");
  EXPECT_EQ(spellings("loss"), "full chunked fused_linear fused_linear_0.6 cut vocab_parallel vocab_parallel_fused");
  EXPECT_EQ(spellings("offload"), "none optimizer params activations");
  EXPECT_EQ(spellings("overlap_comm"), "auto on off");
  EXPECT_EQ(spellings("deepspeed"), "0.19 0.18.2");
  EXPECT_EQ(spellings("cp_comm_type"), "auto p2p all_gather a2a a2a_p2p");
  EXPECT_EQ(spellings("allocator"), "torch torch_expandable");
}

TEST(Recipe, EnumeratorsMeanTheirSpelling) {
  const Result<Recipe> recipe = read_recipe(
      R"({"stack":"hf-4","method":"qlora","precision":"amp-bf16","optimizer":"galore_adamw","attention":"eager",)"
      R"("checkpointing":"full-reentrant","loss":"cut","adapter_dtype":"bf16","units":"titan","param_dtype":"fp32",)"
      R"("reduce_dtype":"bf16","offload":"params","allocator":"torch_expandable","pipeline_schedule":"interleaved"})");
  ASSERT_EQ(outcome(recipe), "ok");
  EXPECT_EQ(recipe.value().stack, Stack::hf_4);
  EXPECT_EQ(recipe.value().method, Method::qlora);
  EXPECT_EQ(recipe.value().precision, Precision::amp_bf16);
  EXPECT_EQ(recipe.value().optimizer, Optimizer::galore_adamw);
  EXPECT_EQ(recipe.value().attention, Attention::eager);
  EXPECT_EQ(recipe.value().checkpointing, Checkpointing::full_reentrant);
  EXPECT_EQ(recipe.value().loss, Loss::cut);
  EXPECT_EQ(recipe.value().adapter_dtype, AdapterDtype::bf16);
  EXPECT_EQ(recipe.value().units, Units::titan);
  EXPECT_EQ(recipe.value().param_dtype, ShardDtype::fp32);
  EXPECT_EQ(recipe.value().reduce_dtype, ShardDtype::bf16);
  EXPECT_EQ(recipe.value().offload, Offload::params);
  EXPECT_EQ(recipe.value().allocator, AllocatorKind::torch_expandable);
  EXPECT_EQ(recipe.value().pipeline_schedule, PipelineSchedule::interleaved);
}

TEST(Recipe, FlagsOverAFileKeepTheFilesOtherKeys) {
  const Recipe file = read_recipe(R"({"batch":4,"seq":1024})").value();
  const Recipe both = read_recipe(R"({"seq":512})", file).value();
  EXPECT_EQ(both.batch, 4u);
  EXPECT_EQ(both.seq, 512u);
}

TEST(Recipe, TargetsAreAStringOrAList) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(read_recipe(R"({"targets":"q_proj"})").value().targets, Names{"q_proj"});
  EXPECT_EQ(read_recipe(R"({"targets":["q_proj","v_proj"]})").value().targets, (Names{"q_proj", "v_proj"}));
  const Recipe two = read_recipe(R"({"targets":["q_proj","v_proj"]})").value();
  EXPECT_NE(written(two).find(R"("targets":["q_proj","v_proj"])"), std::string::npos);
}

struct BadRecipe {
  const char* name;
  const char* text;
  const char* want;
};

TEST(Recipe, MistakesAreNamed) {
  const BadRecipe cases[] = {
      {"typing error in a key", R"({"bacth":4})", "unknown_key where=bacth read= expected= nearest=batch"},
      {"dash for underscore", R"({"grad-accum":4})", "unknown_key where=grad-accum read= expected= nearest=grad_accum"},
      {"no key is near", R"({"zzzzzzzzzz":4})", "unknown_key where=zzzzzzzzzz read= expected= nearest="},
      {"a key that is null still must exist", R"({"bacth":null})",
       "unknown_key where=bacth read= expected= nearest=batch"},
      {"typing error in a value", R"({"method":"qlorra"})",
       "not_one_of where=method read=\"qlorra\" expected=full|lora|qlora nearest=qlora"},
      {"other case", R"({"method":"LoRA"})",
       "not_one_of where=method read=\"LoRA\" expected=full|lora|qlora nearest=lora"},
      {"underscore for dash", R"({"checkpointing":"full_reentrant"})",
       "not_one_of where=checkpointing read=\"full_reentrant\" expected=none|full|full-reentrant|selective|offload "
       "nearest=full-reentrant"},
      {"number for a choice", R"({"method":1})", "wrong_type where=method read=1 expected=string nearest="},
      {"text for a flag", R"({"compile":"true"})", "wrong_type where=compile read=\"true\" expected=boolean nearest="},
      {"number for a flag", R"({"compile":1})", "wrong_type where=compile read=1 expected=boolean nearest="},
      {"text for a number", R"({"batch":"4"})", "wrong_type where=batch read=\"4\" expected=integer nearest="},
      {"half a batch", R"({"batch":0.5})", "wrong_type where=batch read=0.5 expected=integer nearest="},
      {"no batch", R"({"batch":0})", "out_of_range where=batch read=0 expected=1..65536 nearest="},
      {"dropout above 1", R"({"lora_dropout":1.5})", "out_of_range where=lora_dropout read=1.5 expected=0..1 nearest="},
      {"unit in a file", R"({"memory_limit_bytes":"24GiB"})",
       "wrong_type where=memory_limit_bytes read=\"24GiB\" expected=integer nearest="},
      {"no targets", R"({"targets":[]})", "out_of_range where=targets read=0 expected=1..64 nearest="},
      {"empty target", R"({"targets":[""]})", "out_of_range where=targets read=\"\" expected=1..128 nearest="},
      {"number as target", R"({"targets":["q_proj",7]})", "wrong_type where=targets read=7 expected=string nearest="},
      {"blank before a name", R"({"targets":[" q_proj"]})",
       "wrong_type where=targets read=\" q_proj\" expected=module name nearest="},
      {"two names in one", R"({"targets":["q_proj,v_proj"]})",
       "wrong_type where=targets read=\"q_proj,v_proj\" expected=module name nearest="},
      {"a line separator", "{\"targets\":[\"\\u2028q_proj\"]}",
       "wrong_type where=targets read=\"\u2028q_proj\" expected=module name nearest="},
      {"number as targets", R"({"targets":7})", "wrong_type where=targets read=7 expected=string|array nearest="},
      {"a list", "[]", "not_an_object where= read=array expected=object nearest="},
      {"broken", "{\"batch\":4", "json_syntax where=1:11 read=end_of_text expected= nearest="},
  };
  for (const BadRecipe& bad : cases)
    EXPECT_EQ(outcome(read_recipe(bad.text)), bad.want) << bad.name;
}

TEST(Recipe, AnUnknownGpuNamesTheNearest) {
  const Result<Recipe> recipe = read_recipe(R"({"gpu":"h100-80g"})");
  ASSERT_EQ(code_of(recipe), "not_one_of");
  EXPECT_EQ(recipe.problem().nearest, "h100-80gb");
  EXPECT_NE(recipe.problem().expected.find("|h100-80gb|"), std::string::npos);
}

struct FlagText {
  const char* key;
  const char* text;
  const char* want;  // recipe_value, or outcome
};

TEST(RecipeText, IsReadAsPeopleTypeIt) {
  const FlagText cases[] = {
      {"compile", "", "true"},
      {"compile", "1", "true"},
      {"compile", "off", "false"},
      {"compile", "maybe", "wrong_type where=compile read=\"maybe\" expected=boolean nearest="},
      {"batch", "8", "8"},
      {"batch", "8x", "wrong_type where=batch read=\"8x\" expected=integer nearest="},
      {"batch", "", "wrong_type where=batch read=\"\" expected=integer nearest="},
      {"batch", "-8", "out_of_range where=batch read=-8 expected=1..65536 nearest="},
      {"batch", "[8]", "wrong_type where=batch read=\"[8]\" expected=integer nearest="},
      {"lora_dropout", "0.05", "0.05"},
      {"targets", "q_proj,v_proj", "q_proj,v_proj"},
      {"targets", "", "out_of_range where=targets read=\"\" expected=1..128 nearest="},
      {"memory_limit_bytes", "24GiB", "25769803776"},
      {"memory_limit_bytes", "24GB", "24000000000"},
      {"memory_limit_bytes", "25769803776", "25769803776"},
      {"memory_limit_bytes", "2000TiB",
       "out_of_range where=memory_limit_bytes read=2199023255552000 "
       "expected=0..1125899906842624 nearest="},
      {"memory_limit_bytes", "24 apples",
       "wrong_type where=memory_limit_bytes read=\"24 apples\" expected=integer nearest="},
      {"optimiser", "sgd", "unknown_key where=optimiser read= expected= nearest=optimizer"},
  };
  for (const FlagText& c : cases) {
    const Result<Recipe> recipe = with_recipe_text({}, c.key, c.text);
    EXPECT_EQ(recipe.ok() ? recipe_value(recipe.value(), c.key) : outcome(recipe), c.want) << c.key << " " << c.text;
  }
}

TEST(RecipeKeys, AreSnakeCaseAndDifferent) {
  std::set<std::string> names;
  for (const RecipeKey& key : recipe_keys()) {
    const std::string name = key.name;
    EXPECT_EQ(name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_"), std::string::npos) << name;
    EXPECT_TRUE(names.insert(name).second) << name;
  }
  EXPECT_EQ(recipe_value({}, "nothing"), "");
}

TEST(RecipeKeys, OfferTheCatalogueAsGpus) {
  for (const RecipeKey& key : recipe_keys()) {
    if (key.name == std::string("gpu")) {
      EXPECT_EQ(key.choices.size(), gpus().size());
    }
  }
}

}  // namespace
}  // namespace ledger
