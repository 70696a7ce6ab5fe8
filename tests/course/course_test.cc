// The course's figures, as its chapter prints them: GB is 1e9 bytes, GiB 2^30. The stack
// `course` computes the chapter's rules of thumb; where a figure also holds of real code, the stack `hf` stands beside
// it.
#include "core/training/course.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/answer/flops.h"
#include "probe/measured.h"
#include "tests/config/fixtures.h"
#include "tests/training/runs.h"

namespace ledger {
namespace {

// To `digits` decimals, as the chapter prints them.
double printed(double value, int digits) {
  const double scale = std::pow(10, digits);
  return std::round(value * scale) / scale;
}
double gb(Bytes bytes, int digits) {
  return printed(static_cast<double>(bytes) / 1e9, digits);
}
double gib(Bytes bytes, int digits) {
  return printed(static_cast<double>(bytes) / static_cast<double>(kGiB), digits);
}

ModelConfig llama(const char* file) {
  return read_model_config(fixture(std::string("configs/") + file)).value();
}
ModelConfig eight_billion() {
  return llama("llama-3.1-8b.json");
}

Recipe course(Precision precision, Optimizer optimizer = Optimizer::adamw_fused) {
  Recipe recipe;
  recipe.stack = Stack::course;
  recipe.precision = precision;
  recipe.optimizer = optimizer;
  recipe.seq = 4096;
  return recipe;
}

// Categories alive when `phase` ends.
std::array<Bytes, kCategories> alive_after(const Prediction& p, const std::string& phase) {
  std::uint32_t last = 0;
  bool inside = false;
  for (std::uint32_t i = 0; i < p.trace.events.size(); ++i) {
    if (p.trace.events[i].type == EventType::mark) inside = p.trace.phases[p.trace.events[i].id] == phase;
    last = inside ? i : last;
  }
  return ledger_at(p.trace, last).categories;
}

Bytes of(const std::array<Bytes, kCategories>& bytes, Category category) {
  return bytes[static_cast<std::size_t>(category)];
}

TEST(Course, C1_BytesAreElementsTimesElementSize) {
  const Shape shape{{1000, Sym::none}, {1000, Sym::none}};
  EXPECT_EQ(times(shape.numel(), element_bytes(DType::f32)), 4000000u);
  EXPECT_EQ(times(shape.numel(), element_bytes(DType::bf16)), 2000000u);
  EXPECT_EQ(times(shape.numel(), element_bytes(DType::i8)), 1000000u);
}

TEST(Course, C2_SixteenBytesInFiveCopies) {
  const CourseBytes bytes = course_bytes(course(Precision::megatron_bf16_bf16grad));
  EXPECT_EQ(bytes.weights, 2u);
  EXPECT_EQ(bytes.gradients, 2u);
  EXPECT_EQ(bytes.master_weights, 4u);
  EXPECT_EQ(bytes.optimizer_states, 4u + 4u);
  EXPECT_EQ(bytes.resident(), 16u);
  EXPECT_EQ(bytes.transient_copy, 0u);
}

TEST(Course, C3_SixteenBytesUnderAutocastAndTwoTransient) {
  const CourseBytes bytes = course_bytes(course(Precision::amp_bf16));
  EXPECT_EQ(bytes.weights, 4u);
  EXPECT_EQ(bytes.gradients, 4u);
  EXPECT_EQ(bytes.master_weights, 0u);
  EXPECT_EQ(bytes.optimizer_states, 4u + 4u);
  EXPECT_EQ(bytes.resident(), 16u);
  EXPECT_EQ(bytes.transient_copy, 2u);
}

// The same in transformers' code: 4 + 4 + 8 bytes a parameter (and a 4-byte counter a tensor); the bf16 copies are of
// the linear weights, dropped one by one in backward.
TEST(Course, C3_InRealCode) {
  Recipe recipe = recipe_of({{"precision", "amp-bf16"}, {"checkpointing", "full"}});
  const Prediction p = predict_run(odd_llama(), recipe).value();
  const auto bytes = alive_after(p, "step2.backward");
  EXPECT_EQ(of(bytes, Category::weights), 4 * p.params);
  EXPECT_EQ(of(bytes, Category::gradients), 4 * p.params);
  EXPECT_EQ(of(bytes, Category::optimizer_states), 8 * p.params + 4 * p.trace.parameters.size());
  EXPECT_EQ(of(bytes, Category::activations), 0u);
}

TEST(Course, C4_OptimizersWithoutMomentsOrWithSmallOnes) {
  EXPECT_EQ(course_bytes(course(Precision::megatron_bf16_bf16grad, Optimizer::sgd)).resident(), 8u);
  EXPECT_EQ(course_bytes(course(Precision::megatron_bf16_bf16grad, Optimizer::adamw_8bit)).resident(), 10u);
}

TEST(Course, C5_EightBillionParametersInFull) {
  const ModelConfig config = eight_billion();
  EXPECT_EQ(printed(static_cast<double>(parameter_count(config)) / 1e9, 2), 8.03);
  const Prediction p = predict_run(config, course(Precision::bf16)).value();
  const auto bytes = alive_after(p, "step2.optimizer");
  Bytes states = 0;
  for (const Category category :
       {Category::weights, Category::gradients, Category::master_weights, Category::optimizer_states}) {
    states += of(bytes, category);
  }
  EXPECT_EQ(gb(states, 1), 128.5);
  EXPECT_EQ(p.verdict.answer, Answer::does_not_fit);  // on one 80 GB card
}

// Real bf16 weights with PyTorch's AdamW have no master copy: 2 + 2 + 2 + 2 bytes.
TEST(Course, C5_InRealCodeWithoutAMasterCopy) {
  Recipe recipe;
  recipe.seq = 4096;
  const Prediction p = predict_run(eight_billion(), recipe).value();
  const auto bytes = alive_after(p, "step2.backward");
  EXPECT_EQ(of(bytes, Category::weights) + of(bytes, Category::gradients), 4 * p.params);
  EXPECT_EQ(of(bytes, Category::optimizer_states), 4 * p.params + 4 * p.trace.parameters.size());
  EXPECT_EQ(gb(8 * p.params, 1), 64.2);
}

TEST(Course, C9_LayerInputsOnly) {
  Recipe recipe = course(Precision::bf16);
  recipe.checkpointing = Checkpointing::full;
  EXPECT_EQ(course_activations(eight_billion(), recipe), kGiB);  // 32 x 4096 x 4096 x 2
}

// In transformers' code, one [1, 4096, 4096] bf16 input per checkpointed layer.
TEST(Course, C9_InRealCode) {
  Recipe recipe;
  recipe.seq = 4096;
  recipe.checkpointing = Checkpointing::full;
  ModelConfig config = eight_billion();
  const auto kept = [&](std::uint64_t layers) {
    config.num_hidden_layers = layers;
    return of(alive_after(predict_run(config, recipe).value(), "step1.forward"), Category::activations);
  };
  EXPECT_EQ(kept(33) - kept(1), kGiB);
}

TEST(Course, C10_RoughFullActivations) {
  Recipe recipe = course(Precision::bf16);
  EXPECT_EQ(gib(course_activations(eight_billion(), recipe), 1), 16.5);
  recipe.batch = 8;
  EXPECT_EQ(gib(course_activations(eight_billion(), recipe), 1), 132.0);
}

TEST(Course, C11_ActivationsAreLinearAndIgnoreTheParameterCount) {
  const Recipe recipe = course(Precision::bf16);
  const Bytes once = course_activations(eight_billion(), recipe);
  Recipe twice = recipe;
  twice.batch *= 2;
  EXPECT_EQ(course_activations(eight_billion(), twice), 2 * once);
  twice = recipe;
  twice.seq *= 2;
  EXPECT_EQ(course_activations(eight_billion(), twice), 2 * once);
  ModelConfig config = eight_billion();
  config.num_hidden_layers *= 2;
  EXPECT_EQ(course_activations(config, recipe), 2 * once);
  config = eight_billion();
  config.hidden_size *= 2;
  config.intermediate_size *= 2;
  EXPECT_EQ(course_activations(config, recipe), 2 * once);
  config = eight_billion();
  config.vocab_size *= 2;
  EXPECT_GT(parameter_count(config), parameter_count(eight_billion()));
  EXPECT_EQ(course_activations(config, recipe), once);
}

// In transformers' code what a layer keeps is linear in batch and length to the byte, but for 24 bytes of random state.
TEST(Course, C11_InRealCode) {
  const auto layer = [](std::uint64_t batch, std::uint64_t seq) {
    Recipe recipe;
    recipe.batch = batch;
    recipe.seq = seq;
    const auto kept = [&](std::uint64_t layers) {
      return of(alive_after(predict_run(odd_llama(layers), recipe).value(), "step1.forward"), Category::activations);
    };
    return kept(2) - kept(1) - 24;
  };
  EXPECT_EQ(layer(2, 19), 2 * layer(1, 19));
  EXPECT_EQ(layer(1, 38), 2 * layer(1, 19));
}

// C13: forward 1 + backward 2, and full recomputation about one more forward. PyTorch's own stops before the layer's
// last product, down_proj, which the chapter's "about" leaves out.
TEST(Course, C13_FullRecomputationCostsAboutOneMoreForward) {
  ModelConfig config = eight_billion();
  config.num_hidden_layers = 2;
  const auto flops = [&](Checkpointing checkpointing) {
    Recipe recipe;
    recipe.seq = 4096;
    recipe.checkpointing = checkpointing;
    return step_flops(trace_step(config, recipe, {.steps = 1, .operands = true, .weights = {}, .adamw = {}}).value())
        ->layers;
  };
  const Flops plain = flops(Checkpointing::none), checkpointed = flops(Checkpointing::full);
  EXPECT_EQ(plain.backward, 2 * plain.forward);
  EXPECT_EQ(plain.recompute, 0u);
  const std::uint64_t down_proj = 2 * 2 * std::uint64_t{4096} * 14336 * 4096;  // two layers
  EXPECT_EQ(3 * (checkpointed.total() + down_proj), 4 * plain.total());
  const Flops reentrant = flops(Checkpointing::full_reentrant);  // runs the whole layer again
  EXPECT_EQ(reentrant.recompute, plain.forward);
  EXPECT_EQ(3 * reentrant.total(), 4 * plain.total());
  EXPECT_NEAR(static_cast<double>(checkpointed.total()) / static_cast<double>(plain.total()), 4.0 / 3, 0.09);
}

// The chapter's probe: predicted, then really run, with the same allocator and every tensor where the prediction put
// it.
TEST(Course, C19_EightLinearLayersPredictedAndMeasured) {
  const ModelConfig config =
      read_model_config(R"({"layers":[{"linear":[2048,2048]},{"linear":[2048,2048]},)"
                        R"({"linear":[2048,2048]},{"linear":[2048,2048]},{"linear":[2048,2048]},)"
                        R"({"linear":[2048,2048]},{"linear":[2048,2048]},{"linear":[2048,2048]}]})")
          .value();
  Recipe recipe;
  recipe.precision = Precision::fp32;
  recipe.batch = 4;
  const PredictOptions options{.steps = 2, .operands = true, .record_addresses = true};
  const Prediction p = predict_run(config, recipe, options).value();
  EXPECT_EQ(printed(static_cast<double>(p.params) / 1e6, 1), 33.6);
  const auto bytes = alive_after(p, "step2.backward");
  EXPECT_EQ(
      gb(of(bytes, Category::weights) + of(bytes, Category::gradients) + of(bytes, Category::optimizer_states), 2),
      0.54);
  EXPECT_GT(p.replay.peak_allocated_bytes, 500000000u);
  EXPECT_LT(p.replay.peak_allocated_bytes, 700000000u);

  const HostRun run = run_on_host(p.trace, {.allocator = allocator_options(recipe), .record_addresses = true});
  ASSERT_FALSE(run.failure) << run.failure->what;
  EXPECT_EQ(run.replay.peak_allocated_bytes, p.replay.peak_allocated_bytes);
  EXPECT_TRUE(identical(p.replay, run.replay)) << "an event, an address or a sample differs";
  ASSERT_EQ(run.losses.size(), 2u);
  for (const double loss : run.losses)
    EXPECT_TRUE(std::isfinite(loss));
}

// 70 x 10^9 parameters as the chapter rounds them, and a real 70B model: not in 8 x 80 GB, in 16 x 80 GB.
TEST(Course, C20_SeventyBillionInFull) {
  const Bytes each = course_bytes(course(Precision::bf16)).resident();
  EXPECT_EQ(gb(70000000000 * each, 0), 1120);
  const Bytes states = parameter_count(llama("llama-2-70b.json")) * each;
  constexpr Bytes kCard = 80000000000;
  EXPECT_GT(states, 8 * kCard);
  EXPECT_LT(states, 16 * kCard);
}

}  // namespace
}  // namespace ledger
