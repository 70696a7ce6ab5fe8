// Models that see images, under every kind of recipe: running measures what was predicted, nothing is read before it is
// written, and a batch is memorised.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "probe/host/run_host.h"
#include "probe/ranks/stand_in.h"
#include "tests/base/show_problem.h"
#include "tests/models/tiny_families.h"
#include "tests/probe/widen.h"
#include "tests/training/runs.h"

namespace ledger {
namespace {

ModelConfig config_named(const std::string& name) {
  for (const tiny::TinyFamily& family : tiny::kFamilies) {
    if (name != family.name) continue;
    const Result<ModelConfig> config = read_model_config(tiny::text_of(family));
    EXPECT_EQ(outcome(config), "ok");
    ModelConfig result = config.value();
    if (result.vision.any_size()) {
      result.vision.patch_size = 14;
      result.vision.merge_size = 2;
    }
    return result;
  }
  ADD_FAILURE() << name;
  return {};
}

// Four tokens an image, of few pixels.
Recipe with_small_images(Recipe recipe, const ModelConfig& config) {
  if (config.vision.any_size()) recipe.image_height = recipe.image_width = 56;
  return recipe;
}

std::vector<Settings> image_recipes() {
  std::vector<Settings> grid = recipe_grid();
  for (const char* method : {"full", "lora", "qlora"}) {
    for (const char* checkpointing : {"none", "full", "full-reentrant"}) {
      grid.push_back({{"method", method}, {"checkpointing", checkpointing}, {"freeze_vision_tower", "true"}});
      grid.push_back({{"method", method}, {"checkpointing", checkpointing}, {"images", "2"}, {"keep_outputs", "true"}});
    }
  }
  for (const char* optimizer : {"adamw_8bit", "adafactor_torch", "adafactor_hf", "muon", "galore_adamw", "lion"})
    grid.push_back({{"optimizer", optimizer}, {"batch", "1"}});
  grid.push_back({{"precision", "amp-bf16"}, {"keep_outputs", "true"}, {"batch", "1"}});
  return grid;
}

class ImageModels : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(All, ImageModels,
                         testing::Values("vit", "vit_quick", "llava", "llava_of_siglip_and_mistral", "gemma3",
                                         "qwen2_vl", "qwen2_vl_flat", "qwen2_5_vl", "llama4"),
                         [](const auto& test) { return std::string(test.param); });

TEST_P(ImageModels, RunningMeasuresWhatWasPredicted) {
  const ModelConfig config = config_named(GetParam());
  std::size_t ran = 0;
  for (const Settings& settings : image_recipes()) {
    const Recipe recipe = with_small_images(recipe_of(settings), config);
    const Result<Trace> predicted = trace_step(config, recipe);
    if (!predicted.ok()) {
      EXPECT_EQ(predicted.problem().code, ProblemCode::unsupported_recipe) << outcome(predicted);
      continue;
    }
    TraceOptions options;
    options.operands = true;
    const Result<Trace> executed = trace_step(config, recipe, options);
    ASSERT_EQ(outcome(executed), "ok");
    if (!first_not_computed(executed.value()).empty()) continue;
    const ReplayOptions replaying{.allocator = {}, .record_addresses = true};
    const Replay prediction = replay(predicted.value(), replaying);
    HostRunOptions host;
    host.executor.poison = true;
    StandIn ranks(0, recipe.dp);
    if (recipe.dp > 1) host.executor.ranks = &ranks;
    const HostRun run = run_on_host(executed.value(), replaying, host);
    std::string shown_settings;
    for (const auto& [key, text] : settings)
      shown_settings += std::string(key) + "=" + text + " ";
    ASSERT_FALSE(run.failure) << run.failure->what << " under " << shown_settings;
    EXPECT_EQ(run.replay.addresses, prediction.addresses) << shown_settings;
    EXPECT_EQ(run.replay.peak_tensor_bytes, prediction.peak_tensor_bytes) << shown_settings;
    // A scaler would skip a step whose gradients overflow fp16, as the first may; this loop takes it.
    const bool overflows = recipe.precision == Precision::amp_fp16;
    for (std::size_t i = 0; i < (overflows ? 1 : run.losses.size()); ++i)
      EXPECT_TRUE(std::isfinite(run.losses[i])) << shown_settings;
    ++ran;
  }
  EXPECT_GE(ran, 20u);
}

// A small step against the gradient takes its squares off the loss: all of it is what the loss says. In fp64.
TEST_P(ImageModels, TheLossFallsByTheGradientsSquares) {
  Recipe recipe;
  recipe.batch = 2;
  recipe.seq = 12;
  recipe.optimizer = Optimizer::sgd;
  TraceOptions options;
  options.steps = 2;
  options.operands = true;
  options.weights = DType::f64;
  options.max_grad_norm = 0;
  options.adamw.lr = 1e-7;
  ModelConfig config = config_named(GetParam());
  config.vision.hidden_dropout = 0;
  Result<Trace> trace = trace_step(config, with_small_images(recipe, config), options);
  ASSERT_EQ(outcome(trace), "ok");
  widen(trace.value());
  HostRunOptions host;
  host.keep_gradients = true;
  const HostRun run = run_on_host(trace.value(), {}, host);
  ASSERT_FALSE(run.failure) << run.failure->what;
  double squares = 0;
  for (const NamedTensor& gradient : run.gradients) {
    for (const double value : gradient.values)
      squares += value * value;
  }
  const double fell = (run.losses[0] - run.losses[1]) / options.adamw.lr;
  EXPECT_NEAR(fell, squares, 1e-5 * squares);
}

TEST_P(ImageModels, MemoriseABatch) {
  const ModelConfig config = config_named(GetParam());
  Recipe recipe;
  recipe.batch = 2;
  recipe.seq = 12;
  TraceOptions options;
  options.steps = 60;
  options.operands = true;
  options.weights = DType::f64;
  options.adamw.lr = 1e-2;
  const Result<Trace> trace = trace_step(config, with_small_images(recipe, config), options);
  ASSERT_EQ(outcome(trace), "ok");
  const HostRun run = run_on_host(trace.value(), {});
  ASSERT_FALSE(run.failure) << run.failure->what;
  EXPECT_LT(run.losses.back(), 0.1 * run.losses.front());
}

}  // namespace
}  // namespace ledger
