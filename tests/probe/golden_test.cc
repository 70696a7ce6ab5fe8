// The whole step against real transformers and peft code: gradients of every parameter, and the losses of six AdamW
// steps.
//
// tests/fixtures/golden/*.json were made by transformers and torch on a CPU with float64 weights from the formula in
// probe/initial_values.h. Even then transformers computes RMSNorm and the loss in float32, so agreement ends there.
#include "golden.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iostream>
#include <numeric>
#include <utility>

#include "core/training/step.h"
#include "probe/host/run_host.h"

namespace ledger {
namespace {

const std::vector<Json>& golden_cases() {
  static const std::vector<Json> all = [] {
    std::vector<Json> list;
    for (const char* file : {"llama.json", "families.json", "lora.json"}) {
      const Json golden = golden_file(file);
      const std::vector<Json>& items = golden.find("cases")->items();
      list.insert(list.end(), items.begin(), items.end());
    }
    return list;
  }();
  return all;
}

std::vector<std::string> case_ids() {
  std::vector<std::string> ids;
  for (const Json& c : golden_cases())
    ids.emplace_back(*c.find("id")->as_string());
  return ids;
}

class Golden : public testing::TestWithParam<std::string> {
 protected:
  const Json& expected() const {
    return *std::find_if(golden_cases().begin(), golden_cases().end(),
                         [](const Json& c) { return c.find("id")->as_string() == GetParam(); });
  }

  void add_adapters(Recipe& recipe, TraceOptions& options) const {
    const Json* lora = expected().find("lora");
    if (lora == nullptr) return;
    recipe.method = Method::lora;
    recipe.rank = lora->find("rank")->as_unsigned().value();
    options.lora_alpha = lora->find("alpha")->as_real().value();
    recipe.targets.clear();
    for (const Json& target : lora->find("targets")->items())
      recipe.targets.emplace_back(*target.as_string());
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
    add_adapters(recipe, options);
    // With soft-capped scores transformers takes its eager attention; its sdpa call has no such argument.
    if (config.value().attention_softcap != 0) recipe.attention = Attention::eager;
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
    // float32's rounding in the norms and the loss, relative to the gradient as a whole; eager attention, which
    // soft-capped scores need, also rounds its probabilities to float32.
    const double room = model_config_from(*expected().find("config")).value().attention_softcap != 0 ? 5 : 1;
    EXPECT_NEAR(std::sqrt(squares), l2, room * 1e-7 * l2) << name;
    const std::vector<double> first = numbers(*want.find("first"));
    for (std::size_t i = 0; i < first.size(); ++i)
      EXPECT_NEAR(got->values[i], first[i], room * (2e-8 + 2e-7 * std::fabs(first[i]))) << name;
  }
}

// transformers computes the loss in float32, so the golden losses are floats: distance in units of their last place.
double ulps(double got, double want) {
  const auto value = static_cast<float>(want);
  return std::fabs(got - want) / static_cast<double>(std::nextafter(value, 2 * value) - value);
}

TEST_P(Golden, LossesOfSixAdamWStepsAgreeToTwoUnitsInTheLastPlace) {
  const std::vector<double> want = numbers(*expected().find("adamw_losses"));
  const std::vector<double> got = run(trace(static_cast<std::uint32_t>(want.size()))).losses;
  for (std::size_t i = 0; i < want.size(); ++i)
    EXPECT_LE(ulps(got[i], want[i]), 2) << "step " << i + 1;
}

// The losses again, each summed from the log-probabilities as PyTorch's CPU kernel does: in float32, in blocks of 16,
// whose sums wait one level up (aten/src/ATen/native/LossNLL.cpp, nll_loss_out_frame). Our kernel sums in double.
class SumsAsTorch : public HostExecutor {
 public:
  SumsAsTorch(const Trace& trace, HostStore& store) : HostExecutor(trace, store), trace_(trace) {}

  void run(std::uint32_t index) override {
    HostExecutor::run(index);
    const Run& run = trace_.runs[index];
    if (run.op != OpKind::nll_loss || failure()) return;
    const View &log_probabilities = trace_.views[run.first_view], &targets = trace_.views[run.first_view + 1];
    losses_.push_back(loss(read(log_probabilities.storage), read(targets.storage), log_probabilities.sizes[1]));
  }
  const std::vector<double>& torch_losses() const { return losses_; }

 private:
  static double loss(const std::vector<double>& rows, const std::vector<double>& targets, std::size_t width) {
    std::array<float, 8> level{};
    std::size_t counted = 0;
    for (std::size_t t = 0; t < targets.size(); ++t) {
      if (targets[t] == -100) continue;
      ++counted;
      level[0] -= static_cast<float>(rows[t * width + static_cast<std::size_t>(targets[t])]);
      for (std::size_t i = 0; i + 1 < level.size() && (t & (std::size_t{15} << (4 * i))) == 0; ++i)
        level[i + 1] += std::exchange(level[i], 0.0f);
    }
    const float total = std::accumulate(level.begin(), level.end(), 0.0f);
    return static_cast<double>(total / static_cast<float>(counted));
  }

  const Trace& trace_;
  std::vector<double> losses_;
};

// With that order 33 of the 36 losses are the very same floats (21 with a sum in double). What is left comes from
// log_softmax and the norms, whose sums PyTorch splits over the lanes of a vector register, and from exp, which is
// Sleef's there and the C library's here: emulating either turns other losses by a unit, so the bound leaves room.
TEST_P(Golden, MostLossesAreTheSameFloatsWhenSummedInTorchsOrder) {
  const std::vector<double> want = numbers(*expected().find("adamw_losses"));
  const Trace traced = trace(static_cast<std::uint32_t>(want.size()));
  HostStore store;
  SumsAsTorch executor(traced, store);
  replay(traced, {}, &executor, &store);
  ASSERT_FALSE(executor.failure()) << executor.failure()->what;
  const std::vector<double>& got = executor.torch_losses();
  ASSERT_EQ(got.size(), want.size());
  int equal = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    EXPECT_LE(ulps(got[i], want[i]), 2) << "step " << i + 1;
    equal += got[i] == want[i];
  }
  std::cout << GetParam() << ": " << equal << " of " << want.size() << " losses are the same float\n";
  // A router's softmax is one more place where exp differs.
  const bool routed = model_config_from(*expected().find("config")).value().moe.experts != 0;
  EXPECT_GE(equal, routed ? 3 : 4);
}

TEST_P(Golden, RecomputationChangesNothing) {
  const HostRun plain = run(trace(2));
  for (const Checkpointing checkpointing : {Checkpointing::full, Checkpointing::full_reentrant}) {
    Recipe checkpointed;
    checkpointed.checkpointing = checkpointing;
    const HostRun recomputed = run(trace(2, checkpointed));
    EXPECT_EQ(plain.losses, recomputed.losses);
    ASSERT_EQ(plain.gradients.size(), recomputed.gradients.size());
    for (std::size_t i = 0; i < plain.gradients.size(); ++i) {
      EXPECT_EQ(plain.gradients[i].values, recomputed.gradients[i].values) << plain.gradients[i].name;
    }
  }
}

}  // namespace
}  // namespace ledger
