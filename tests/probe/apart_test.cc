// Families without reference traces against a program written apart (tests/fixtures/golden/apart.py): the first loss.
#include <gtest/gtest.h>

#include <string>

#include "core/training/step.h"
#include "golden.h"
#include "probe/host/run_host.h"
#include "tests/base/show_problem.h"

namespace ledger {
namespace {

const std::vector<Json>& cases() {
  static const Json file = golden_file("apart.json");
  return file.find("cases")->items();
}

class Apart : public testing::TestWithParam<std::size_t> {};

INSTANTIATE_TEST_SUITE_P(All, Apart, testing::Range(std::size_t{0}, cases().size()),
                         [](const auto& test) { return std::string(*cases()[test.param].find("id")->as_string()); });

TEST_P(Apart, LossIsTheSame) {
  const Json& expected = cases()[GetParam()];
  const Result<ModelConfig> config = model_config_from(*expected.find("config"));
  ASSERT_EQ(outcome(config), "ok");
  Recipe recipe;
  recipe.batch = expected.find("batch")->as_unsigned().value();
  recipe.seq = expected.find("seq")->as_unsigned().value();
  if (const Json* targets = expected.find("decoder_seq")) recipe.decoder_seq = targets->as_unsigned().value();
  TraceOptions options;
  options.steps = 1;
  options.operands = true;
  options.weights = DType::f64;
  const Result<Trace> trace = trace_step(config.value(), recipe, options);
  ASSERT_EQ(outcome(trace), "ok");
  const HostRun run = run_on_host(trace.value(), {}, {});
  ASSERT_FALSE(run.failure) << run.failure->what;
  // The models' own code takes norms, probabilities and losses through fp32.
  EXPECT_NEAR(run.losses.at(0), expected.find("loss")->as_real().value(), 2e-6);
}

}  // namespace
}  // namespace ledger
