// Models that see images, under every kind of recipe: running measures what was predicted, nothing is read before it is
// written, and a batch is memorised.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "probe/host/run_host.h"
#include "tests/base/show_problem.h"
#include "tests/models/tiny_families.h"
#include "tests/training/runs.h"

namespace ledger {
namespace {

ModelConfig config_named(const std::string& name) {
  for (const tiny::TinyFamily& family : tiny::kFamilies) {
    if (name != family.name) continue;
    const Result<ModelConfig> config = read_model_config(tiny::text_of(family));
    EXPECT_EQ(outcome(config), "ok");
    return config.value();
  }
  ADD_FAILURE() << name;
  return {};
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
                         testing::Values("vit", "vit_quick", "llava", "llava_of_siglip_and_mistral", "gemma3"),
                         [](const auto& test) { return std::string(test.param); });

TEST_P(ImageModels, RunningMeasuresWhatWasPredicted) {
  const ModelConfig config = config_named(GetParam());
  std::size_t ran = 0;
  for (const Settings& settings : image_recipes()) {
    const Recipe recipe = recipe_of(settings);
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
    const HostRun run = run_on_host(executed.value(), replaying, host);
    std::string shown_settings;
    for (const auto& [key, text] : settings)
      shown_settings += std::string(key) + "=" + text + " ";
    ASSERT_FALSE(run.failure) << run.failure->what << " under " << shown_settings;
    EXPECT_EQ(run.replay.addresses, prediction.addresses) << shown_settings;
    EXPECT_EQ(run.replay.peak_tensor_bytes, prediction.peak_tensor_bytes) << shown_settings;
    for (const double loss : run.losses)
      EXPECT_TRUE(std::isfinite(loss)) << shown_settings;
    ++ran;
  }
  EXPECT_GE(ran, 20u);
}

TEST_P(ImageModels, MemoriseABatch) {
  Recipe recipe;
  recipe.batch = 2;
  recipe.seq = 12;
  TraceOptions options;
  options.steps = 60;
  options.operands = true;
  options.weights = DType::f64;
  options.adamw.lr = 1e-2;
  const Result<Trace> trace = trace_step(config_named(GetParam()), recipe, options);
  ASSERT_EQ(outcome(trace), "ok");
  const HostRun run = run_on_host(trace.value(), {});
  ASSERT_FALSE(run.failure) << run.failure->what;
  EXPECT_LT(run.losses.back(), 0.1 * run.losses.front());
}

}  // namespace
}  // namespace ledger
