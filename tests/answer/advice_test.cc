// What would help: each answer is a recipe that was run, and says what running it says.
#include "core/answer/advice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "core/api.h"
#include "tests/answer/json_path.h"
#include "tests/base/show_problem.h"
#include "tests/training/runs.h"

namespace ledger {
namespace {

Prediction predicted(const ModelConfig& config, const Recipe& recipe) {
  return predict_run(config, recipe).value();
}

const Change* find(const Advice& advice, std::string_view id) {
  const auto found =
      std::find_if(advice.changes.begin(), advice.changes.end(), [&](const Change& change) { return change.id == id; });
  return found == advice.changes.end() ? nullptr : &*found;
}

std::size_t keys_apart(const Recipe& a, const Recipe& b) {
  const std::span<const RecipeKey> keys = recipe_keys();
  return static_cast<std::size_t>(std::count_if(keys.begin(), keys.end(), [&](const RecipeKey& key) {
    return recipe_value(a, key.name) != recipe_value(b, key.name);
  }));
}

TEST(Advice, EveryChangeIsWhatRunningItSays) {
  for (const NamedRun& run : small_runs()) {
    const Advice advice = advise(run.config, run.recipe).value();
    EXPECT_EQ(advice.before.allocated_bytes, predicted(run.config, run.recipe).replay.peak_allocated_bytes) << run.name;
    for (const Change& change : advice.changes) {
      const Prediction p = predicted(run.config, change.recipe);
      const std::string where = run.name + ": " + change.id;
      EXPECT_EQ(change.after.allocated_bytes, p.replay.peak_allocated_bytes) << where;
      EXPECT_EQ(change.after.reserved_bytes, p.replay.peak_reserved_bytes) << where;
      EXPECT_EQ(change.after.answer, p.verdict.answer) << where;
      EXPECT_EQ(change.after.headroom_bytes, p.verdict.headroom_bytes) << where;
    }
  }
}

TEST(Advice, EveryChangeLowersThePeakMostFirstAndIsSmall) {
  for (const NamedRun& run : small_runs()) {
    const Advice advice = advise(run.config, run.recipe).value();
    Bytes last = 0;
    std::set<std::string> seen;
    for (const Change& change : advice.changes) {
      const Weighed& after = change.after;
      const bool saves = after.allocated_bytes < advice.before.allocated_bytes ||
                         (after.allocated_bytes == advice.before.allocated_bytes &&
                          after.reserved_bytes < advice.before.reserved_bytes);
      EXPECT_TRUE(saves) << run.name << ": " << change.id;
      EXPECT_GE(after.allocated_bytes, last) << run.name << ": " << change.id;
      EXPECT_LE(keys_apart(run.recipe, change.recipe), 3u) << run.name << ": " << change.id;
      EXPECT_GE(keys_apart(run.recipe, change.recipe), 1u) << run.name << ": " << change.id;
      EXPECT_TRUE(seen.insert(change.id).second) << run.name << ": " << change.id;
      last = after.allocated_bytes;
    }
  }
}

// Of the course: recomputing a layer instead of keeping it, 8-bit states, adapters.
TEST(Advice, NamesWhatTheCourseNames) {
  Recipe recipe = recipe_of({{"batch", "4"}, {"seq", "1024"}});
  const Advice advice = advise(odd_llama(8), recipe).value();
  for (const char* id : {"checkpointing_full", "micro_batch_half", "micro_batch_1", "seq_half"})
    EXPECT_NE(find(advice, id), nullptr) << id;
  recipe.checkpointing = Checkpointing::full;
  EXPECT_EQ(find(advise(odd_llama(8), recipe).value(), "checkpointing_full"), nullptr);
}

TEST(Advice, PiecesOfABatchAreTheSameSamples) {
  const Recipe recipe = recipe_of({{"batch", "12"}, {"grad_accum", "2"}, {"seq", "64"}});
  const Advice advice = advise(odd_llama(), recipe).value();
  for (const char* id : {"micro_batch_half", "micro_batch_1"}) {
    const Change* change = find(advice, id);
    ASSERT_NE(change, nullptr) << id;
    EXPECT_EQ(change->recipe.batch * change->recipe.grad_accum, 24u) << id;
  }
}

TEST(Advice, WhatIsRefusedIsNotAdvised) {
  for (const NamedRun& run : small_runs()) {
    const Advice advice = advise(run.config, run.recipe).value();
    for (const Change& change : advice.changes)
      EXPECT_FALSE(unsupported(run.config, change.recipe)) << run.name << ": " << change.id;
  }
}

Answer answer_for(const ModelConfig& config, Recipe recipe, std::uint64_t Recipe::*key, std::uint64_t value) {
  recipe.*key = value;
  return predicted(config, recipe).verdict.answer;
}

// Weighing replays less than predicting: the scales must say the same, on either side of every limit.
TEST(Weighed, AsPredicted) {
  Recipe recipe = recipe_of({{"batch", "64"}, {"seq", "300"}});
  bool seen[3] = {};
  for (Bytes limit = 500 * kMiB; limit < 1100 * kMiB; limit += 4 * kMiB) {
    recipe.memory_limit_bytes = limit;
    const Verdict verdict = predicted(odd_llama(), recipe).verdict;
    const Weighed weighed = weigh(odd_llama(), recipe).value();
    EXPECT_EQ(weighed.answer, verdict.answer) << limit;
    EXPECT_EQ(weighed.headroom_bytes, verdict.headroom_bytes);
    EXPECT_TRUE(weighed.answer != Answer::fits || weighed.spare_bytes >= 0 ||
                weighed.reserved_bytes + limit / 50 <= verdict.usable_bytes);
    EXPECT_EQ(verdict.out_of_memory, verdict.answer == Answer::does_not_fit);
    seen[static_cast<std::size_t>(verdict.answer)] = true;
  }
  EXPECT_TRUE(seen[0] && seen[1] && seen[2]);
}

// On cards of many sizes, from those that hold nothing to those that hold thousands of samples.
TEST(Solver, TheLargestNumberFitsAndTheNextDoesNot) {
  const ModelConfig config = odd_llama();
  std::uint64_t Recipe::*const keys[] = {&Recipe::batch, &Recipe::seq};
  constexpr Unknown kUnknowns[] = {Unknown::batch, Unknown::seq};
  for (const std::uint64_t begin : {1u, 3u, 500u}) {
    for (const Bytes room : {1 * kMiB, 100 * kMiB, 150 * kMiB, 700 * kMiB, 3 * kGiB}) {
      for (std::size_t i = 0; i < 2; ++i) {
        Recipe recipe = recipe_of({{"attention", "flash"}});
        recipe.*keys[i] = begin;
        recipe.memory_limit_bytes = 781 * kMiB + room;
        const Solution solution = solve(config, recipe, kUnknowns[i]).value();
        if (solution.value == 0) {
          EXPECT_NE(answer_for(config, recipe, keys[i], 1), Answer::fits);
          EXPECT_FALSE(solution.after);
          continue;
        }
        EXPECT_FALSE(solution.at_limit);
        EXPECT_EQ(answer_for(config, recipe, keys[i], solution.value), Answer::fits);
        EXPECT_NE(answer_for(config, recipe, keys[i], solution.value + 1), Answer::fits) << solution.value;
        recipe.*keys[i] = solution.value;
        ASSERT_TRUE(solution.after);
        EXPECT_EQ(solution.after->allocated_bytes, predicted(config, recipe).replay.peak_allocated_bytes);
      }
    }
  }
}

TEST(Solver, NothingFitsWhereTheWeightsDoNot) {
  Recipe recipe = recipe_of({});
  recipe.memory_limit_bytes = 1 * kMiB;
  for (const Unknown unknown : {Unknown::batch, Unknown::seq}) {
    const Solution solution = solve(odd_llama(), recipe, unknown).value();
    EXPECT_EQ(solution.value, 0u);
    EXPECT_FALSE(solution.after);
  }
}

TEST(Solver, TheLargestBatchThatTheKeyAllowsIsSaidToBeThat) {
  const Solution solution = solve(plain_stack({{2, 2, false}}), recipe_of({}), Unknown::batch).value();
  EXPECT_EQ(solution.value, 65536u);
  EXPECT_TRUE(solution.at_limit);
}

// Qwen2.5-VL attends to windows one by one: the events of a step grow with the batch.
TEST(Solver, TheLargestThatIsTracedIsSaidToBeThat) {
  const ModelConfig config = read_model_config(R"({"model_type":"qwen2_5_vl","image_token_id":7,
      "text_config":{"hidden_size":32,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,
      "intermediate_size":48,"vocab_size":61,"rope_scaling":{"type":"mrope","mrope_section":[2,1,1]}},
      "vision_config":{"hidden_size":16,"depth":64,"num_heads":2,"intermediate_size":24,"out_hidden_size":32,
      "window_size":56,"fullatt_block_indexes":[2]}})")
                                 .value();
  Recipe recipe = recipe_of({{"seq", "64"}, {"batch", "200"}, {"image_height", "112"}, {"image_width", "112"}});
  const Solution solution = solve(config, recipe, Unknown::batch).value();
  EXPECT_TRUE(solution.at_limit);
  ASSERT_TRUE(solution.after);
  recipe.batch = solution.value;
  EXPECT_EQ(outcome(predict_run(config, recipe)), "ok");
  recipe.batch = solution.value + 1;
  EXPECT_EQ(code_of(predict_run(config, recipe)), "too_large_to_trace");
}

TEST(Solver, EverySmallerCardIsTooSmall) {
  std::vector<PlainLinear> layers(24, {8192, 8192, false});
  const ModelConfig config = plain_stack(layers);
  Recipe recipe = recipe_of({{"precision", "fp32"}});
  const Solution solution = solve(config, recipe, Unknown::gpu).value();
  ASSERT_NE(solution.gpu, nullptr);
  for (const Gpu& card : gpus()) {
    recipe.gpu = card.id;
    const Answer answer = predicted(config, recipe).verdict.answer;
    if (&card == solution.gpu) {
      EXPECT_EQ(answer, Answer::fits) << card.id;
    }
    if (card.usable_bytes < solution.gpu->usable_bytes) {
      EXPECT_NE(answer, Answer::fits) << card.id;
    }
  }
}

TEST(Solver, NoCardHoldsWhatIsTooLargeForAll) {
  std::vector<PlainLinear> layers(200, {16384, 16384, false});
  const Solution solution = solve(plain_stack(layers), recipe_of({{"precision", "fp32"}}), Unknown::gpu).value();
  EXPECT_EQ(solution.gpu, nullptr);
}

std::string asked(const char* about) {
  return std::string(R"({"config":{"layers":[{"linear":[64,64]}]},"recipe":{"batch":4},"about":")") + about + "\"}";
}

TEST(ApiAdvise, AnswersWhatItIsAskedAbout) {
  for (const char* about : {"changes", "batch", "seq", "gpu"})
    EXPECT_EQ(text(parsed(advise(asked(about))), "advice.about"), about);
  EXPECT_EQ(text(parsed(advise(asked("money"))), "problem.where"), "about");
  EXPECT_EQ(text(parsed(advise("{}")), "problem.code"), "missing_key");
}

TEST(ApiAdvise, RecipesThatAreRefusedAreProblems) {
  const std::string request = R"({"config":{"layers":[{"linear":[64,64]}]},"recipe":{"tp":2},"about":"batch"})";
  EXPECT_EQ(text(parsed(advise(request)), "problem.code"), "unsupported_recipe");
}

TEST(ApiAdvise, ChangesCarryTheirWholeRecipe) {
  const Json answer = parsed(advise(asked("changes")));
  const Json* changes = answer.find("advice")->find("changes");
  ASSERT_FALSE(changes->items().empty());
  for (const Json& change : changes->items()) {
    const Result<Recipe> recipe = recipe_from(*change.find("recipe"));
    ASSERT_TRUE(recipe.ok());
    EXPECT_EQ(change.find("after")->find("allocated_bytes")->as_unsigned(),
              predicted(plain_stack({{64, 64, true}}), recipe.value()).replay.peak_allocated_bytes);
  }
}

}  // namespace
}  // namespace ledger
