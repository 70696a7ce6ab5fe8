// The whole step against real transformers code: gradients of every parameter, and the losses of six AdamW steps.
//
// tests/fixtures/golden/llama.json was made by transformers and torch on a CPU with float64 weights from the formula in
// probe/initial_values.h. Even then transformers computes RMSNorm and the loss in float32, so agreement ends there.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include "core/training/step.h"
#include "probe/host/run_host.h"

namespace ledger {
namespace {

std::string file(const char* path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

const Json& golden() {
  static const Result<Json> parsed = parse_json(file(FIXTURES "/golden/llama.json"));
  return parsed.value();
}

std::vector<std::string> case_ids() {
  std::vector<std::string> ids;
  for (const Json& c : golden().find("cases")->items())
    ids.emplace_back(*c.find("id")->as_string());
  return ids;
}

std::vector<double> numbers(const Json& list) {
  std::vector<double> values;
  for (const Json& item : list.items())
    values.push_back(item.as_real().value());
  return values;
}

class Golden : public testing::TestWithParam<std::string> {
 protected:
  const Json& expected() const {
    const std::vector<Json>& cases = golden().find("cases")->items();
    return *std::find_if(cases.begin(), cases.end(),
                         [](const Json& c) { return c.find("id")->as_string() == GetParam(); });
  }

  // torch.optim.AdamW(lr=1e-2), no clipping.
  Trace trace(std::uint32_t steps, Recipe recipe = {}) const {
    Result<ModelConfig> config = model_config_from(*expected().find("config"));
    EXPECT_TRUE(config.ok());
    recipe.batch = expected().find("batch")->as_unsigned().value();
    recipe.seq = expected().find("seq")->as_unsigned().value();
    TraceOptions options;
    options.steps = steps;
    options.operands = true;
    options.weights = DType::f64;
    options.adamw.lr = 1e-2;
    options.max_grad_norm = 0;
    Result<Trace> result = trace_step(config.value(), recipe, options);
    EXPECT_TRUE(result.ok());
    return result.ok() ? std::move(result.value()) : Trace();
  }

  static HostRun run(const Trace& trace) {
    HostRunOptions options;
    options.executor.poison = true;
    options.keep_gradients = true;
    HostRun result = run_on_host(trace, {}, options);
    EXPECT_FALSE(result.failure) << result.failure->what;
    return result;
  }
};

INSTANTIATE_TEST_SUITE_P(Transformers, Golden, testing::ValuesIn(case_ids()), [](const auto& test) {
  std::string name = test.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST_P(Golden, GradientsOfEveryParameterAgree) {
  const std::vector<NamedTensor> gradients = run(trace(1)).gradients;
  const std::vector<Json::Member>& expected_gradients = expected().find("grads")->members();
  EXPECT_EQ(gradients.size(), expected_gradients.size());
  for (const auto& [name, want] : expected_gradients) {
    const auto got = std::find_if(gradients.begin(), gradients.end(), [&](const auto& g) { return g.name == name; });
    ASSERT_NE(got, gradients.end()) << name;
    double squares = 0;
    for (const double value : got->values)
      squares += value * value;
    const double l2 = want.find("l2")->as_real().value();
    // float32's rounding in the norms and the loss, relative to the gradient as a whole.
    EXPECT_NEAR(std::sqrt(squares), l2, 1e-7 * l2) << name;
    const std::vector<double> first = numbers(*want.find("first"));
    for (std::size_t i = 0; i < first.size(); ++i)
      EXPECT_NEAR(got->values[i], first[i], 2e-8 + 2e-7 * std::fabs(first[i])) << name;
  }
}

TEST_P(Golden, LossesOfSixAdamWStepsAgree) {
  const std::vector<double> want = numbers(*expected().find("adamw_losses"));
  const std::vector<double> got = run(trace(static_cast<std::uint32_t>(want.size()))).losses;
  // Adam divides by the root of tiny second moments, so rounding grows from step to step.
  for (std::size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(got[i], want[i], 1e-6 * static_cast<double>(i + 1)) << "step " << i + 1;
}

TEST_P(Golden, RecomputationChangesNothing) {
  Recipe checkpointed;
  checkpointed.checkpointing = Checkpointing::full;
  const HostRun plain = run(trace(2)), recomputed = run(trace(2, checkpointed));
  EXPECT_EQ(plain.losses, recomputed.losses);
  ASSERT_EQ(plain.gradients.size(), recomputed.gradients.size());
  for (std::size_t i = 0; i < plain.gradients.size(); ++i) {
    EXPECT_EQ(plain.gradients[i].values, recomputed.gradients[i].values) << plain.gradients[i].name;
  }
}

}  // namespace
}  // namespace ledger
