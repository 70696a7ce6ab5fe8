// Plans for many GPUs: what is computed of a step's time against runs that were published, and that every plan found is
// valid, fits, and is no slower than one that was passed over.
#include "core/answer/plans.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/answer/advice.h"
#include "core/answer/report.h"
#include "core/api.h"
#include "tests/answer/json_path.h"
#include "tests/config/fixtures.h"

namespace ledger {
namespace {

ModelConfig config_of(const Json& root) {
  Result<ModelConfig> config = model_config_from(root);
  EXPECT_TRUE(config.ok());
  return config.ok() ? std::move(config.value()) : ModelConfig{};
}

TEST(StepTime, PublishedRunsTookBetweenItsBoundsTimesThis) {
  const Json rows = parsed(fixture("step_times.json"));
  double low = 1e9, high = 0;
  for (const Json& row : rows.find("rows")->items()) {
    const Result<Recipe> recipe = recipe_from(*row.find("recipe"));
    ASSERT_TRUE(recipe.ok()) << text(row, "id");
    const auto time = step_time(config_of(*row.find("config")), recipe.value());
    ASSERT_TRUE(time) << text(row, "id");
    EXPECT_NEAR(time->seconds(), *row.find("computed_s")->as_real(), 1e-4 * time->seconds()) << text(row, "id");
    const double ratio = *row.find("measured_s")->as_real() / time->seconds();
    EXPECT_GE(ratio, kFastest) << text(row, "id");
    EXPECT_LE(ratio, kSlowest) << text(row, "id");
    low = std::min(low, ratio);
    high = std::max(high, ratio);
  }
  EXPECT_GE(rows.find("rows")->items().size(), 30u);
  EXPECT_NEAR(low, kFastest, 0.1);  // the bounds are those of the rows, not wider
  EXPECT_NEAR(high, kSlowest, 0.1);
}

Recipe megatron() {
  Recipe r;
  r.stack = Stack::megatron;
  r.precision = Precision::megatron_bf16;
  r.loss = Loss::vocab_parallel;
  r.zero = 1;
  r.seq = 4096;
  return r;
}

ModelConfig llama_8b() {
  return config_of(parsed(fixture("configs/llama-3.1-8b.json")));
}

// By hand, of Llama-3.1-8B on one H100: a layer has 218 103 808 weights in its products.
TEST(StepTime, ComputeIsTheProductsAtTheCardsPeak) {
  const auto time = step_time(llama_8b(), megatron());
  ASSERT_TRUE(time);
  const double layer = 2.0 * 218103808 + 2.0 * 4096 * 4096, head = 2.0 * 4096 * 128256;
  EXPECT_DOUBLE_EQ(time->compute, 4096 * (32 * 3 * layer + 3 * head) / 989.4e12);
  EXPECT_EQ(time->seconds(), time->compute);
  EXPECT_EQ(time->data_bytes, 0u);
}

// Ring all-reduce of [b, s, h] in 16 bits among 4: 2 x 3/4, four a layer.
TEST(StepTime, TensorParallelSendsFourAllReducesALayer) {
  Recipe r = megatron();
  r.tp = 4;
  const auto time = step_time(llama_8b(), r);
  EXPECT_EQ(time->tensor_bytes, std::uint64_t{32} * 4 * 2 * 3 * (4096 * 4096 * 2) / 4);
  EXPECT_DOUBLE_EQ(time->tensor, static_cast<double>(time->tensor_bytes) / 450e9);
}

TEST(StepTime, TheBubbleIsThePipelinesFilling) {
  Recipe r = megatron();
  r.pp = 4;
  r.micro_batches = 8;
  const auto plain = step_time(llama_8b(), r);
  EXPECT_NEAR(plain->bubble, (plain->compute + plain->pipeline) * 3 / 8, 1e-12);
  r.pipeline_schedule = PipelineSchedule::interleaved;
  const auto interleaved = step_time(llama_8b(), r);
  EXPECT_LT(interleaved->bubble, plain->bubble / 7);  // eight chunks of one layer
  EXPECT_EQ(interleaved->pipeline_bytes, 8 * plain->pipeline_bytes);
}

TEST(StepTime, WhatLeavesTheMachineGoesAtTheNetworksRate) {
  Recipe r = megatron();
  r.dp = 8;
  const auto within = step_time(llama_8b(), r);
  r.dp = 16;
  const auto between = step_time(llama_8b(), r);
  EXPECT_DOUBLE_EQ(within->data, static_cast<double>(within->data_bytes) / 450e9);
  EXPECT_DOUBLE_EQ(between->data, static_cast<double>(between->data_bytes) / 50e9);
  r.gpu = "v100-32gb";
  EXPECT_FALSE(step_time(llama_8b(), r));
}

ModelConfig mixtral() {
  return config_of(parsed(
      R"({"model_type": "mixtral", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
          "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 32000, "num_local_experts": 8,
          "num_experts_per_tok": 2})"));
}

// By hand: attention has 41 943 040 weights, the two experts of a token 3 x 4096 x 14336 each.
TEST(StepTime, ATokenGoesThroughItsExpertsAlone) {
  Recipe r = megatron();
  r.etp = 1;
  const auto alone = step_time(mixtral(), r);
  ASSERT_TRUE(alone);
  const double layer = 2.0 * (41943040 + 2 * 176160768) + 2.0 * 4096 * 4096, head = 2.0 * 4096 * 32000;
  EXPECT_DOUBLE_EQ(alone->compute, 4096 * (32 * 3 * layer + 3 * head) / 989.4e12);
  EXPECT_EQ(alone->tensor_bytes, 0u);
  EXPECT_EQ(expert_parameters(mixtral()), std::uint64_t{32} * 8 * 176160768);
  // Two rows a token out and back in each pass, 3/4 of them to others.
  r.dp = r.ep = 4;
  const auto spread = step_time(mixtral(), r);
  EXPECT_EQ(spread->tensor_bytes, std::uint64_t{32} * 2 * 2 * 2 * (4096 * 4096 * 2) * 3 / 4);
  // Nobody else has the same experts.
  const std::uint64_t others = 32 * 41943040ull + 2 * 32000 * 4096ull;
  EXPECT_EQ(spread->data_bytes, others * 6 * 3 / 4);
}

TEST(Plans, SpreadExpertsWhereTheyFitNoCard) {
  const Result<Plans> found = find_plans(mixtral(), megatron(), {.gpus = 16, .global_batch = 64});
  ASSERT_TRUE(found.ok());
  ASSERT_FALSE(found.value().plans.empty());
  bool spread = false;
  for (const Plan& plan : found.value().plans) {
    spread = spread || plan.recipe.ep > 1;
    const Result<Prediction> run = predict_run(mixtral(), plan.recipe);
    ASSERT_TRUE(run.ok());
    EXPECT_EQ(run.value().verdict.answer, Answer::fits);
    EXPECT_EQ(run.value().replay.peak_allocated_bytes, plan.allocated_bytes);
  }
  EXPECT_TRUE(spread);
}

TEST(Plans, AreValidFitAndComeQuickestFirst) {
  const Result<Plans> found = find_plans(llama_8b(), megatron(), {.gpus = 16, .global_batch = 64});
  ASSERT_TRUE(found.ok());
  const Plans& plans = found.value();
  ASSERT_FALSE(plans.plans.empty());
  EXPECT_GE(plans.valid, plans.traced);
  double last = 0;
  for (const Plan& plan : plans.plans) {
    const Recipe& r = plan.recipe;
    EXPECT_EQ(r.dp * r.tp * r.pp * r.cp, 16u);
    EXPECT_EQ(r.dp * r.batch * r.micro_batches, 64u);
    EXPECT_GE(plan.time.seconds(), last);
    last = plan.time.seconds();
    // The whole report, all stages traced, says the same.
    const Result<Prediction> run = predict_run(llama_8b(), r);
    ASSERT_TRUE(run.ok());
    EXPECT_EQ(run.value().verdict.answer, Answer::fits);
    EXPECT_EQ(run.value().replay.peak_allocated_bytes, plan.allocated_bytes);
  }
}

// Everything quicker than the first plan was passed over for a reason: run one by one, none of it fits.
TEST(Plans, NothingQuickerFits) {
  Recipe small = megatron();
  small.seq = 2048;
  small.memory_limit_bytes = 24 * kGiB;
  const PlanQuestion question{.gpus = 8, .global_batch = 16};
  const Result<Plans> found = find_plans(llama_8b(), small, question);
  ASSERT_TRUE(found.ok() && !found.value().plans.empty());
  const double first = found.value().plans.front().time.seconds();
  int quicker = 0;
  for (const std::uint64_t tp : {1u, 2u, 4u, 8u}) {
    for (const std::uint64_t pp : {1u, 2u, 4u, 8u}) {
      for (const Checkpointing checkpointing : {Checkpointing::none, Checkpointing::selective, Checkpointing::full}) {
        if (8 % (tp * pp) != 0) continue;
        Recipe r = small;
        r.tp = tp;
        r.pp = pp;
        r.dp = 8 / (tp * pp);
        r.sequence_parallel = tp > 1;
        r.checkpointing = checkpointing;
        r.micro_batches = 16 / r.dp;
        if (step_time(llama_8b(), r)->seconds() >= first) continue;
        ++quicker;
        const Result<Weighed> weighed = weigh(llama_8b(), r);
        ASSERT_TRUE(weighed.ok());
        EXPECT_NE(weighed.value().answer, Answer::fits) << tp << " " << pp;
      }
    }
  }
  EXPECT_GT(quicker, 0);
}

TEST(Plans, QuestionsThatHaveNoAnswerSayWhy) {
  const ModelConfig config = llama_8b();
  EXPECT_EQ(find_plans(config, megatron(), {.gpus = 0, .global_batch = 1}).problem().where, "gpus");
  EXPECT_EQ(find_plans(config, megatron(), {.gpus = 8, .global_batch = 0}).problem().where, "global_batch");
  Recipe r = megatron();
  r.gpu = "v100-32gb";
  EXPECT_EQ(find_plans(config, r, {}).problem().expected, "plans_need_link_rates");
  ModelConfig experts = config;
  experts.moe.experts = 8;
  experts.style.routing = Routing::every_expert;
  EXPECT_EQ(find_plans(experts, megatron(), {}).problem().expected, "megatron_builds_gpt_and_llama");
  // 7 GPUs and 5 sequences: no combination divides both.
  const Result<Plans> none = find_plans(config, megatron(), {.gpus = 7, .global_batch = 5});
  ASSERT_TRUE(none.ok());
  EXPECT_TRUE(none.value().plans.empty());
}

TEST(Plans, TheDoorAnswersWithTheSame) {
  const std::string config = fixture("configs/llama-3.1-8b.json");
  const Json answer = parsed(
      advise(R"({"about":"plans","stack":"megatron","gpus":8,"global_batch":32,"recipe":{"seq":4096},"config":)" +
             config + "}"));
  EXPECT_EQ(text(answer, "advice.about"), "plans");
  EXPECT_EQ(number(answer, "advice.gpus"), 8u);
  EXPECT_FALSE(at(answer, "advice.plans").items().empty());
  EXPECT_EQ(text(answer, "advice.plans.0.recipe.stack"), "megatron");
  const Json wrong = parsed(advise(R"({"about":"plans","gpus":"many","config":)" + config + "}"));
  EXPECT_EQ(text(wrong, "problem.code"), "wrong_type");
}

}  // namespace
}  // namespace ledger
