// A small model of every traced family really trains on the host: its loss falls, and recomputation changes nothing.
#include <gtest/gtest.h>

#include <cmath>

#include "core/training/step.h"
#include "probe/host/run_host.h"
#include "tests/base/show_problem.h"
#include "tests/models/tiny_families.h"

namespace ledger {
namespace {

class FamiliesTrain : public testing::TestWithParam<tiny::TinyFamily> {
 protected:
  static HostRun run(Recipe recipe, std::uint32_t steps) {
    const Result<ModelConfig> config = read_model_config(tiny::text_of(GetParam()));
    EXPECT_EQ(outcome(config), "ok");
    recipe.batch = 2;
    recipe.seq = 12;
    TraceOptions options;
    options.steps = steps;
    options.operands = true;
    options.weights = DType::f64;
    options.adamw.lr = 1e-2;
    const Result<Trace> trace = trace_step(config.value(), recipe, options);
    EXPECT_EQ(outcome(trace), "ok");
    HostRunOptions host;
    host.executor.poison = true;
    host.keep_gradients = true;
    HostRun result = run_on_host(trace.value(), {}, host);
    EXPECT_FALSE(result.failure) << result.failure->what;
    return result;
  }
};

INSTANTIATE_TEST_SUITE_P(All, FamiliesTrain, testing::ValuesIn(tiny::kFamilies),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(FamiliesTrain, LossFalls) {
  const std::vector<double> losses = run({}, 8).losses;
  ASSERT_EQ(losses.size(), 8u);
  for (const double loss : losses)
    EXPECT_TRUE(std::isfinite(loss));
  // T5 drops out a tenth of everything: of the embeddings, the probabilities and every sum's new part.
  const double share = std::string(GetParam().name) == "t5" ? 0.95 : 0.9;
  EXPECT_LT(losses.back(), share * losses.front());
}

TEST_P(FamiliesTrain, EveryParameterGetsAGradient) {
  for (const NamedTensor& gradient : run({}, 1).gradients) {
    double squares = 0;
    for (const double value : gradient.values)
      squares += value * value;
    // A key's bias moves all scores of a query alike, which softmax does not see.
    const bool key_bias = gradient.name.find("k_proj.bias") != std::string::npos ||
                          gradient.name.find("self.key.bias") != std::string::npos;
    EXPECT_TRUE(key_bias || squares > 0) << gradient.name;
  }
}

TEST_P(FamiliesTrain, RecomputationChangesNothing) {
  const HostRun plain = run({}, 2);
  const std::string name = GetParam().name;
  const bool only_full = name.starts_with("t5") || name == "llama4";
  for (const Checkpointing checkpointing : {Checkpointing::full, Checkpointing::full_reentrant}) {
    if (only_full && checkpointing == Checkpointing::full_reentrant) continue;  // refused by name
    Recipe recipe;
    recipe.checkpointing = checkpointing;
    const HostRun again = run(recipe, 2);
    EXPECT_EQ(plain.losses, again.losses);
    ASSERT_EQ(plain.gradients.size(), again.gradients.size());
    for (std::size_t i = 0; i < plain.gradients.size(); ++i)
      EXPECT_EQ(plain.gradients[i].values, again.gradients[i].values) << plain.gradients[i].name;
  }
}

TEST_P(FamiliesTrain, AdaptersTrainToo) {
  Recipe recipe;
  recipe.method = Method::lora;
  const std::string name = GetParam().name;
  if (name.starts_with("deepseek") || name.starts_with("llama4"))
    recipe.targets = {"o_proj", "gate_proj", "up_proj"};  // not the router
  const std::vector<double> losses = run(recipe, 8).losses;
  EXPECT_LT(losses.back(), losses.front());
}

}  // namespace
}  // namespace ledger
