// A few thousand seeded mutations of configs and recipes: never a crash, always a value or a Problem that can be shown.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "core/config/model_config.h"
#include "core/config/recipe.h"
#include "tests/base/show_problem.h"
#include "tests/config/fixtures.h"

namespace ledger {
namespace {

constexpr int kRounds = 6000;

// Pieces that break parsers: numbers at limits, literals of other languages, nesting, escapes, broken UTF-8.
const std::vector<std::string> kPieces = {
    "-1",
    "0",
    "1e999",
    "1e308",
    "18446744073709551616",
    "9223372036854775808",
    "-0",
    "0.5",
    "NaN",
    "null",
    "true",
    "\"",
    "\\",
    "\\u0000",
    "\\ud800",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "[[[[[[[[",
    "{\"a\":",
    "\xFF",
    "\xEF\xBB\xBF",
    "\xED\xA0\x80",
    std::string(1, '\0'),
    "\"model_type\":\"plain\",",
    "\"layers\":[{\"linear\":[1,2]}],",
    "\"rope_scaling\":{\"type\":\"linear\"},",
};

class Mutator {
 public:
  explicit Mutator(unsigned seed) : random_(seed) {}

  std::string mutate(std::string text) {
    for (std::size_t edits = 1 + below(4); edits > 0; --edits)
      edit(text);
    return text;
  }

 private:
  std::size_t below(std::size_t end) { return end == 0 ? 0 : random_() % end; }

  void edit(std::string& text) {
    const std::size_t at = below(text.size() + 1);
    switch (below(7)) {
      case 0:
        text.resize(at);
        break;
      case 1:
        text.erase(at, below(12));
        break;
      case 2:
        text.insert(at, kPieces[below(kPieces.size())]);
        break;
      case 3:
        if (at < text.size()) text[at] = static_cast<char>(random_());
        break;
      case 4:
        text.insert(at, text.substr(below(text.size() + 1), below(40)));
        break;
      case 5:
        replace_number(text, at);
        break;
      case 6:
        text.replace(at, below(4), kPieces[below(kPieces.size())]);
        break;
    }
  }

  void replace_number(std::string& text, std::size_t from) {
    const std::size_t start = text.find_first_of("0123456789", from);
    if (start == std::string::npos) return;
    const std::size_t end = text.find_first_not_of("0123456789.e-", start);
    text.replace(start, (end == std::string::npos ? text.size() : end) - start, kPieces[below(10)]);
  }

  std::mt19937 random_;
};

void expect_showable(const Problem& problem) {
  JsonWriter out;
  out.begin_object().member("code", problem_id(problem.code)).member("where", problem.where);
  out.member("read", problem.read).member("expected", problem.expected).member("nearest", problem.nearest).end_object();
  ASSERT_EQ(outcome(parse_json(out.take())), "ok");
  ASSERT_LE(problem.read.size(), 80u) << shown(problem);
}

TEST(ConfigMutations, GiveAConfigOrAProblem) {
  const std::vector<std::string> seeds = {
      fixture("configs/llama-3.1-8b.json"),
      fixture("configs/smollm2-135m.json"),
      R"({"model_type":"llama"})",
      R"({"layers":[{"linear":[8,4]},{"linear":[4,2],"bias":false}]})",
      R"({"model_type":"llama","quantization_config":{"quant_method":"awq"},"rope_scaling":{"type":"yarn","factor":4}})",
      R"({"model_type":"gemma3","text_config":{"model_type":"gemma3_text","num_hidden_layers":34,"rope_scaling":{)"
      R"("factor":8.0,"rope_type":"linear"}},"vision_config":{"model_type":"siglip_vision_model","image_size":896}})",
      R"({"model_type":"qwen3_moe","mlp_only_layers":[0,5],"decoder_sparse_step":2,"num_experts":64,"head_dim":null})",
      R"({"model_type":"deepseek_v3","q_lora_rank":null,"n_shared_experts":2,"first_k_dense_replace":1})",
      R"({"model_type":"deepseek_v2","num_experts_per_tok":6,"topk_method":"group_limited_greedy","n_group":8,)"
      R"("topk_group":3,"n_routed_experts":160})",
      R"({"model_type":"llama4_text","no_rope_layers":[1,0],"layer_types":["chunked_attention"],"moe_layers":[1]})",
      R"({"model_type":"gptj","n_embd":64,"n_head":4,"rotary_dim":8})",
      R"({"model_type":"roberta","architectures":["RobertaForMaskedLM"],"type_vocab_size":1})",
      R"({"model_type":"qwen2_vl","hidden_size":1536,"vision_config":{"depth":32,"embed_dim":1280,"hidden_size":1536}})",
      R"({"model_type":"falcon","n_head":64,"n_head_kv":8,"new_decoder_architecture":true})",
      R"({"model_type":"t5","d_model":512,"feed_forward_proj":"gated-gelu","num_decoder_layers":3})",
      R"({"model_type":"smollm3","no_rope_layers":[1,1,0,1],"layer_types":["full_attention","sliding_attention"]})"};
  Mutator mutator(20240501);
  int read = 0;
  for (int i = 0; i < kRounds; ++i) {
    const std::string text = mutator.mutate(seeds[static_cast<std::size_t>(i) % seeds.size()]);
    const Result<ModelConfig> config = read_model_config(text);
    if (!config.ok()) {
      expect_showable(config.problem());
      continue;
    }
    ++read;
    ASSERT_GT(parameter_count(config.value()), 0u) << text;
    ASSERT_LT(parameter_count(config.value()), std::uint64_t{1} << 63) << text;
  }
  EXPECT_GT(read, kRounds / 50);  // the mutations are not all trivially broken
}

TEST(RecipeMutations, GiveARecipeThatReadsBackOrAProblem) {
  JsonWriter out;
  write_recipe(out, {});
  const std::vector<std::string> seeds = {
      out.take(), R"({"method":"qlora","targets":["q_proj","v_proj"],"rank":8,"lora_dropout":0.1})",
      R"({"batch":4,"seq":4096,"gpu":"a100-80gb","memory_limit_bytes":25769803776,"compile":true})"};
  Mutator mutator(20240502);
  int read = 0;
  for (int i = 0; i < kRounds; ++i) {
    const Result<Recipe> recipe = read_recipe(mutator.mutate(seeds[static_cast<std::size_t>(i) % seeds.size()]));
    if (!recipe.ok()) {
      expect_showable(recipe.problem());
      continue;
    }
    ++read;
    JsonWriter again;
    write_recipe(again, recipe.value());
    const Result<Recipe> back = read_recipe(again.take());
    ASSERT_EQ(outcome(back), "ok");
    ASSERT_EQ(back.value(), recipe.value());
  }
  EXPECT_GT(read, kRounds / 50);
}

TEST(FlagMutations, GiveARecipeOrAProblem) {
  Mutator mutator(20240503);
  for (int i = 0; i < kRounds; ++i) {
    const RecipeKey& key = recipe_keys()[static_cast<std::size_t>(i) % recipe_keys().size()];
    const std::string text = mutator.mutate(recipe_value({}, key.name));
    const Result<Recipe> recipe = with_recipe_text({}, key.name, text);
    if (!recipe.ok()) expect_showable(recipe.problem());
  }
}

}  // namespace
}  // namespace ledger
