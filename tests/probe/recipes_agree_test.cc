// Recipes that differ in memory only compute the same numbers: bit for bit where the arithmetic is the same, and up to
// rounding where it is ordered differently.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "probe/host/run_host.h"
#include "tests/models/tiny_families.h"
#include "tiny_models.h"

namespace ledger {
namespace {

HostRun run(const char* config, Recipe recipe, std::uint32_t steps = 3) {
  recipe.batch = 2;
  recipe.seq = 8;
  HostRunOptions options;
  options.keep_gradients = true;
  HostRun result = run_on_host(tiny::trace(config, recipe, {steps}), {}, options);
  EXPECT_FALSE(result.failure) << result.failure->what;
  return result;
}

void expect_same(const HostRun& a, const HostRun& b) {
  EXPECT_EQ(a.losses, b.losses);
  ASSERT_EQ(a.gradients.size(), b.gradients.size());
  for (std::size_t i = 0; i < a.gradients.size(); ++i)
    EXPECT_EQ(a.gradients[i].values, b.gradients[i].values) << a.gradients[i].name;
}

struct Recomputed {
  const char* name;
  const char* config;
  void (*set)(Recipe&);
};

void PrintTo(const Recomputed& c, std::ostream* out) {
  *out << c.name;
}

class Recomputation : public testing::TestWithParam<Recomputed> {
 protected:
  static Recipe recipe(Checkpointing checkpointing = Checkpointing::none) {
    Recipe result;
    GetParam().set(result);
    result.checkpointing = checkpointing;
    return result;
  }
};

constexpr Recomputed kRecomputed[] = {
    {"bf16", tiny::kLlama, [](Recipe&) {}},
    {"amp_bf16", tiny::kLlama, [](Recipe& r) { r.precision = Precision::amp_bf16; }},
    {"bf16_autocast", tiny::kQwen3, [](Recipe& r) { r.autocast = true; }},
    {"fp32_math", tiny::kQwen2, [](Recipe& r) { r.precision = Precision::fp32; }},
    {"fp32_efficient", tiny::kUngrouped, [](Recipe& r) { r.precision = Precision::fp32; }},
    {"eager", tiny::kTied, [](Recipe& r) { r.attention = Attention::eager; }},
    {"accumulated", tiny::kLlama, [](Recipe& r) { r.grad_accum = 3; }},
    {"lora_dropout", tiny::kLlama,
     [](Recipe& r) {
       r.method = Method::lora;
       r.lora_dropout = 0.2;
     }},
    {"lora_dropout_accumulated", tiny::kLlama,
     [](Recipe& r) {
       r.method = Method::lora;
       r.lora_dropout = 0.2;
       r.grad_accum = 2;
     }},
    {"dora_dropout", tiny::kLlama,
     [](Recipe& r) {
       r.method = Method::lora;
       r.dora = true;
       r.lora_dropout = 0.2;
     }},
    {"qlora_dropout", tiny::kLlama,
     [](Recipe& r) {
       r.method = Method::qlora;
       r.lora_dropout = 0.2;
     }},
};

INSTANTIATE_TEST_SUITE_P(Recipes, Recomputation, testing::ValuesIn(kRecomputed),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(Recomputation, ChangesNeitherLossesNorGradients) {
  const HostRun plain = run(GetParam().config, recipe());
  expect_same(plain, run(GetParam().config, recipe(Checkpointing::full)));
  for (const Checkpointing kind : {Checkpointing::full_reentrant, Checkpointing::selective, Checkpointing::offload}) {
    SCOPED_TRACE(static_cast<int>(kind));
    expect_same(plain, run(GetParam().config, recipe(kind)));
  }
}

// Mean negative log-likelihood by four programs: the last bits differ with the order of sums.
class LossKinds : public testing::TestWithParam<Loss> {};
INSTANTIATE_TEST_SUITE_P(All, LossKinds,
                         testing::Values(Loss::fused_linear, Loss::fused_linear_0_6, Loss::cut, Loss::chunked));

void expect_near_gradients(const HostRun& a, const HostRun& b, double tolerance) {
  ASSERT_EQ(a.gradients.size(), b.gradients.size());
  for (std::size_t i = 0; i < a.gradients.size(); ++i) {
    ASSERT_EQ(a.gradients[i].values.size(), b.gradients[i].values.size()) << a.gradients[i].name;
    double largest = 0, difference = 0;
    for (std::size_t j = 0; j < a.gradients[i].values.size(); ++j) {
      largest = std::max(largest, std::abs(a.gradients[i].values[j]));
      difference = std::max(difference, std::abs(a.gradients[i].values[j] - b.gradients[i].values[j]));
    }
    EXPECT_GT(largest, 0) << a.gradients[i].name;
    EXPECT_LE(difference, tolerance * largest) << a.gradients[i].name;
  }
}

TEST_P(LossKinds, HaveTheValueAndTheGradientsOfTheFullLoss) {
  for (const char* config : {tiny::kLlama, tiny::kTied}) {
    Recipe recipe;
    recipe.precision = Precision::fp32;
    const HostRun full = run(config, recipe, 1);
    recipe.loss = GetParam();
    const HostRun other = run(config, recipe, 1);
    EXPECT_NEAR(other.losses[0], full.losses[0], 4e-6);
    expect_near_gradients(full, other, 2e-5);
  }
}

TEST_P(LossKinds, TrainUnderAutocastAccumulationAndAdapters) {
  for (const Method method : {Method::full, Method::lora, Method::qlora}) {
    Recipe recipe;
    recipe.method = method;
    recipe.autocast = method != Method::full;
    recipe.precision = method == Method::full ? Precision::amp_bf16 : Precision::bf16;
    recipe.grad_accum = 2;
    const std::vector<double> full = run(tiny::kLlama, recipe).losses;
    recipe.loss = GetParam();
    const std::vector<double> other = run(tiny::kLlama, recipe).losses;
    ASSERT_EQ(full.size(), other.size());
    for (std::size_t i = 0; i < full.size(); ++i)
      EXPECT_NEAR(other[i], full[i], 0.02 * full[i]) << i;
    EXPECT_LT(other.back(), other.front());
  }
}

// Liger's kernels in place of the operators that transformers writes out; recomputing changes nothing at all.
TEST(Liger, ComputesWhatItReplaces) {
  std::vector<std::string> configs = {tiny::kLlama, tiny::kQwen2, tiny::kQwen3};
  for (const tiny::TinyFamily& family : tiny::kFamilies) {
    const std::string_view name = family.name;
    if (name.starts_with("gemma") && name != "gemma3") configs.push_back(tiny::text_of(family));
    if (name == "phi3" || name == "olmo2") configs.push_back(tiny::text_of(family));
  }
  ASSERT_EQ(configs.size(), 8u);
  for (const std::string& text : configs) {
    const char* const config = text.c_str();
    SCOPED_TRACE(text);
    for (const Method method : {Method::full, Method::lora}) {
      Recipe recipe;
      recipe.method = method;
      recipe.precision = Precision::fp32;
      const HostRun written_out = run(config, recipe, 1);
      recipe.liger = true;
      const HostRun fused = run(config, recipe, 1);
      EXPECT_NEAR(fused.losses[0], written_out.losses[0], 2e-6);
      expect_near_gradients(written_out, fused, 1e-4);
      recipe.checkpointing = Checkpointing::full;
      expect_same(fused, run(config, recipe, 1));
      recipe.checkpointing = Checkpointing::full_reentrant;
      expect_same(fused, run(config, recipe, 1));
    }
  }
}

TEST(Liger, LearnsInEveryPrecision) {
  for (const Precision precision : {Precision::bf16, Precision::amp_bf16, Precision::fp32}) {
    Recipe recipe;
    recipe.precision = precision;
    recipe.liger = true;
    recipe.loss = Loss::fused_linear;
    const std::vector<double> losses = run(tiny::kLlama, recipe, 6).losses;
    EXPECT_LT(losses.back(), 0.9 * losses.front());
  }
}

TEST(Stacks, TransformersFourComputesWhatFiveDoes) {
  for (const char* config : {tiny::kLlama, tiny::kQwen2}) {
    Recipe recipe;
    recipe.precision = Precision::fp32;
    recipe.attention = Attention::eager;
    const HostRun five = run(config, recipe, 1);
    recipe.stack = Stack::hf_4;
    const HostRun four = run(config, recipe, 1);
    EXPECT_NEAR(four.losses[0], five.losses[0], 2e-6);
    expect_near_gradients(five, four, 1e-5);
  }
}

// The loss over chunks is the loss over all logits, in sums of another order; recomputing changes nothing at all.
TEST(Stacks, TorchtuneComputesTheSameInChunksAndRecomputed) {
  for (const char* config : {tiny::kLlama, tiny::kTied, tiny::kUngrouped}) {
    Recipe recipe;
    recipe.stack = Stack::torchtune;
    recipe.precision = Precision::fp32;
    const HostRun full = run(config, recipe);
    EXPECT_LT(full.losses.back(), full.losses.front());
    recipe.loss = Loss::chunked;
    const HostRun chunked = run(config, recipe);
    EXPECT_NEAR(chunked.losses[0], full.losses[0], 4e-6);
    expect_near_gradients(full, chunked, 2e-3);
    recipe.checkpointing = Checkpointing::full;
    expect_same(chunked, run(config, recipe));
  }
}

// A norm in one kernel is the norm written out; recomputing changes nothing at all.
TEST(Stacks, TorchtitanComputesTheSameInEveryVersionAndRecomputed) {
  for (const char* config : {tiny::kLlama, tiny::kTied, tiny::kQwen3}) {
    Recipe recipe;
    recipe.precision = Precision::fp32;
    recipe.stack = Stack::torchtitan;
    const HostRun full = run(config, recipe);
    EXPECT_LT(full.losses.back(), full.losses.front());
    for (const Checkpointing checkpointing : {Checkpointing::full, Checkpointing::selective}) {
      recipe.checkpointing = checkpointing;
      expect_same(full, run(config, recipe));
    }
    recipe.checkpointing = Checkpointing::none;
    if (config == tiny::kQwen3) continue;
    for (const Stack stack : {Stack::torchtitan_0_1, Stack::torchtitan_0_0_2}) {
      recipe.stack = stack;
      const HostRun written_out = run(config, recipe);
      EXPECT_NEAR(written_out.losses[0], full.losses[0], 2e-6);
      expect_near_gradients(full, written_out, 1e-4);
    }
  }
}

// Experts' results scaled and added one by one are those that a product adds up.
TEST(Stacks, TorchtitansExpertsComputeTheSameInEveryVersionAndRecomputed) {
  Recipe recipe;
  recipe.precision = Precision::fp32;
  HostRun of_version[2];
  for (const Stack stack : {Stack::torchtitan, Stack::torchtitan_0_2_0}) {
    recipe.stack = stack;
    recipe.checkpointing = Checkpointing::none;
    const HostRun full = run(tiny::kTitanExperts, recipe);
    EXPECT_LT(full.losses.back(), full.losses.front());
    for (const Checkpointing checkpointing : {Checkpointing::full, Checkpointing::selective}) {
      recipe.checkpointing = checkpointing;
      expect_same(full, run(tiny::kTitanExperts, recipe));
    }
    of_version[stack == Stack::torchtitan] = full;
  }
  EXPECT_NEAR(of_version[0].losses[0], of_version[1].losses[0], 2e-6);
  expect_near_gradients(of_version[0], of_version[1], 2e-3);  // products of experts round to 16 bits
}

// Of full logits or of tokens: losses by chunks are sums in another order.
TEST(Stacks, TorchtitansChunkedLossesAreTheSameFunction) {
  for (const char* config : {tiny::kLlama, tiny::kTied}) {
    for (const auto& [stack, precision] :
         {std::pair(Stack::torchtitan, Precision::fp32), std::pair(Stack::torchtitan, Precision::amp_bf16),
          std::pair(Stack::torchtitan_0_0_2, Precision::fp32)}) {
      Recipe recipe;
      recipe.precision = precision;
      recipe.stack = stack;
      recipe.grad_accum = 2;
      const HostRun full = run(config, recipe, 1);
      recipe.loss = Loss::chunked;
      const HostRun chunked = run(config, recipe, 1);
      EXPECT_NEAR(chunked.losses[0], full.losses[0], 2e-6);
      expect_near_gradients(full, chunked, precision == Precision::fp32 ? 1e-5 : 2e-2);
      recipe.checkpointing = Checkpointing::full;
      expect_same(chunked, run(config, recipe, 1));
    }
  }
}

// sdpa with the window's mask as a bias, beside eager attention, which adds the same mask to its scores.
TEST(Attention, AFullSlidingWindowIsTheSameFunctionEagerOrFused) {
  const char* windowed =
      R"({"model_type": "mistral", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
          "num_key_value_heads": 2, "intermediate_size": 64, "vocab_size": 64, "sliding_window": 5})";
  Recipe recipe;
  recipe.precision = Precision::fp32;
  recipe.attention = Attention::eager;
  const HostRun eager = run(windowed, recipe, 1);
  recipe.attention = Attention::sdpa;
  const HostRun fused = run(windowed, recipe, 1);
  EXPECT_NEAR(fused.losses[0], eager.losses[0], 2e-6);
  expect_near_gradients(eager, fused, 1e-5);
  recipe.checkpointing = Checkpointing::full;
  expect_same(fused, run(windowed, recipe, 1));
  const std::string wide = std::string(windowed).replace(std::string(windowed).rfind('5'), 1, "64");
  const HostRun unwindowed = run(wide.c_str(), recipe, 1);
  EXPECT_NE(unwindowed.losses[0], fused.losses[0]) << "the window hides something";
}

TEST(Attention, CudnnIsTheSameArithmeticAsFlash) {
  Recipe recipe;
  recipe.attention = Attention::flash;
  const HostRun flash = run(tiny::kLlama, recipe);
  recipe.attention = Attention::cudnn;
  expect_same(flash, run(tiny::kLlama, recipe));
}

TEST(Dropout, EveryMicroBatchAndStepDrawsAnotherMask) {
  Recipe recipe;
  recipe.method = Method::lora;
  recipe.precision = Precision::fp32;
  recipe.lora_dropout = 0.3;
  recipe.grad_accum = 2;
  const std::vector<double> losses = run(tiny::kLlama, recipe).losses;
  EXPECT_NE(losses[0], losses[1]) << "the same batch and the same weights";
  recipe.lora_dropout = 0;
  const std::vector<double> without = run(tiny::kLlama, recipe).losses;
  EXPECT_EQ(without[0], without[1]);
  EXPECT_NE(losses[0], without[0]);
}

// Halves of a gradient are exact in fp32, and so is their sum.
TEST(Accumulation, OfTheSameBatchTwiceIsTheBatch) {
  Recipe recipe;
  recipe.precision = Precision::fp32;
  const std::vector<double> once = run(tiny::kLlama, recipe).losses;
  recipe.grad_accum = 2;
  const std::vector<double> twice = run(tiny::kLlama, recipe).losses;
  ASSERT_EQ(twice.size(), 2 * once.size());
  for (std::size_t i = 0; i < once.size(); ++i) {
    EXPECT_EQ(twice[2 * i], once[i]) << i;
    EXPECT_EQ(twice[2 * i + 1], once[i]) << i;
  }
}

TEST(Optimizers, ForeachAndForLoopAreTheSameArithmetic) {
  for (const Precision precision : {Precision::bf16, Precision::fp32}) {
    Recipe recipe;
    recipe.precision = precision;
    recipe.optimizer = Optimizer::adamw_foreach;
    const HostRun foreach = run(tiny::kLlama, recipe, 6);
    recipe.optimizer = Optimizer::adamw_forloop;
    expect_same(foreach, run(tiny::kLlama, recipe, 6));
  }
}

TEST(Optimizers, FusedAndForeachAdamWDifferByRounding) {
  Recipe recipe;
  recipe.precision = Precision::fp32;
  const std::vector<double> fused = run(tiny::kLlama, recipe, 6).losses;
  recipe.optimizer = Optimizer::adamw_foreach;
  const std::vector<double> foreach = run(tiny::kLlama, recipe, 6).losses;
  for (std::size_t i = 0; i < fused.size(); ++i)
    EXPECT_NEAR(foreach[i], fused[i], 1e-4) << i;
}

// fp32, as many key/value heads as query heads: every implementation but flash can run.
TEST(AttentionKinds, ComputeTheSameFunction) {
  Recipe recipe;
  recipe.precision = Precision::fp32;
  recipe.attention = Attention::efficient;
  const HostRun reference = run(tiny::kUngrouped, recipe, 1);
  for (const Attention kind : {Attention::math, Attention::eager, Attention::sdpa}) {
    recipe.attention = kind;
    const HostRun other = run(tiny::kUngrouped, recipe, 1);
    EXPECT_NEAR(other.losses[0], reference.losses[0], 1e-6);
    ASSERT_EQ(other.gradients.size(), reference.gradients.size());
    for (std::size_t i = 0; i < other.gradients.size(); ++i) {
      const std::vector<double>&got = other.gradients[i].values, &want = reference.gradients[i].values;
      double error = 0, size = 0;
      for (std::size_t j = 0; j < want.size(); ++j) {
        error += (got[j] - want[j]) * (got[j] - want[j]);
        size += want[j] * want[j];
      }
      EXPECT_LT(error, 1e-10 * size) << other.gradients[i].name << ": fp32 reordered, normalised mean square error";
    }
  }
}

}  // namespace
}  // namespace ledger
