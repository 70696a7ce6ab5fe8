// The stack native against the stack hf: the same model on the same weights in other operators.
//
// transformers computes norms and the loss in fp32, whatever the weights are, so that in fp64, too, the two agree up to
// fp32's rounding; native's own gradients are held to finite differences in fp64.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/memory/replay.h"
#include "core/trace/fused_ops.h"
#include "probe/host/run_host.h"
#include "tests/probe/slope.h"
#include "tests/trace/tape_tester.h"
#include "tiny_models.h"

namespace ledger {
namespace {

struct ModelCase {
  const char* name;
  const char* config;
  Method method = Method::full;
};

void PrintTo(const ModelCase& c, std::ostream* out) {
  *out << c.name;
}

class Native : public testing::TestWithParam<ModelCase> {
 protected:
  static Trace trace(Stack stack, std::optional<DType> weights, Checkpointing checkpointing = Checkpointing::none,
                     std::uint64_t grad_accum = 1) {
    const Result<ModelConfig> config = read_model_config(GetParam().config);
    EXPECT_TRUE(config.ok());
    Recipe recipe;
    recipe.stack = stack;
    recipe.method = GetParam().method;
    recipe.prepare_kbit = false;
    recipe.checkpointing = checkpointing;
    recipe.grad_accum = grad_accum;
    recipe.batch = 2;
    recipe.seq = 12;
    TraceOptions options;
    options.steps = 1;
    options.operands = true;
    options.weights = weights;
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

  // By name: the two stacks meet their parameters in another order.
  static std::map<std::string, std::vector<double>> gradients(const HostRun& run) {
    std::map<std::string, std::vector<double>> all;
    for (const NamedTensor& gradient : run.gradients)
      all[gradient.name] = gradient.values;
    return all;
  }

  // Squared error over squared size.
  static double nmse(const std::vector<double>& got, const std::vector<double>& expected) {
    double error = 0, size = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      error += (got[i] - expected[i]) * (got[i] - expected[i]);
      size += expected[i] * expected[i];
    }
    return error / size;
  }

  static void expect_same(const HostRun& got, const HostRun& expected, double loss, double most) {
    for (std::size_t i = 0; i < expected.losses.size(); ++i)
      EXPECT_NEAR(got.losses[i], expected.losses[i], loss * expected.losses[i]);
    const auto mine = gradients(got), theirs = gradients(expected);
    ASSERT_EQ(mine.size(), theirs.size());
    ASSERT_FALSE(theirs.empty());
    for (const auto& [name, values] : theirs) {
      ASSERT_TRUE(mine.contains(name)) << name;
      ASSERT_EQ(mine.at(name).size(), values.size()) << name;
      EXPECT_LE(nmse(mine.at(name), values), most) << name;
    }
  }
};

constexpr ModelCase kModels[] = {
    {"llama", tiny::kLlama},
    {"tied", tiny::kTied},
    {"mistral", tiny::kUngrouped},
    {"qwen2", tiny::kQwen2},
    {"qwen3", tiny::kQwen3},
    {"lora", tiny::kLlama, Method::lora},
    {"lora_qwen3", tiny::kQwen3, Method::lora},
};

INSTANTIATE_TEST_SUITE_P(Models, Native, testing::ValuesIn(kModels), [](const auto& c) { return c.param.name; });

TEST_P(Native, HasTheLossesAndGradientsOfTransformers) {
  expect_same(run(trace(Stack::native, DType::f64)), run(trace(Stack::hf, DType::f64)), 1e-6, 1e-10);
}

// One rounding where transformers has several: within what bf16 does to a parameter's gradient.
TEST_P(Native, StaysWithTransformersInBf16) {
  expect_same(run(trace(Stack::native, std::nullopt)), run(trace(Stack::hf, std::nullopt)), 2e-3, 1e-3);
}

TEST_P(Native, RecomputesToTheBit) {
  const HostRun plain = run(trace(Stack::native, std::nullopt));
  const HostRun recomputed = run(trace(Stack::native, std::nullopt, Checkpointing::full));
  EXPECT_EQ(plain.losses, recomputed.losses);
  expect_same(recomputed, plain, 0, 0);
}

TEST_P(Native, GradientsAreTheDerivativesOfTheLoss) {
  const Trace traced = trace(Stack::native, DType::f64);
  const double stated = stated_slope(traced, run(traced).gradients), measured = measured_slope(traced, 1e-6);
  EXPECT_NEAR(stated, measured, 1e-7 * std::fabs(measured) + 1e-9);
}

// An NF4 base is decoded to bf16, whatever the weights are: what is held to fp64 above has no 4-bit case.
class NativeOnNf4 : public Native {};
INSTANTIATE_TEST_SUITE_P(Models, NativeOnNf4,
                         testing::Values(ModelCase{"qlora", tiny::kWide, Method::qlora},
                                         ModelCase{"qlora_qwen3", tiny::kQwen3, Method::qlora}),
                         [](const auto& c) { return c.param.name; });

TEST_P(NativeOnNf4, StaysWithTransformersInBf16) {
  expect_same(run(trace(Stack::native, std::nullopt)), run(trace(Stack::hf, std::nullopt)), 2e-3, 1e-3);
}

TEST_P(NativeOnNf4, RecomputesToTheBit) {
  const HostRun plain = run(trace(Stack::native, std::nullopt));
  const HostRun recomputed = run(trace(Stack::native, std::nullopt, Checkpointing::full));
  EXPECT_EQ(plain.losses, recomputed.losses);
  expect_same(recomputed, plain, 0, 0);
}

// --- memory
// --------------------------------------------------------------------------------------------------------------

struct Phase {
  Bytes start = 0, peak = 0;
};

// What is alive when `name` begins, and at its peak.
Phase phase(const Trace& trace, const std::string& name) {
  Bytes live = 0;
  Phase found;
  bool inside = false;
  for (const Event& event : trace.events) {
    if (event.type == EventType::alloc) live += trace.storages[event.id].bytes;
    if (event.type == EventType::free) live -= trace.storages[event.id].bytes;
    if (event.type == EventType::mark) {
      inside = trace.phases[event.id] == name;
      if (inside) found.start = live;
    }
    if (inside) found.peak = std::max(found.peak, live);
  }
  return found;
}

Trace sized(const char* config, Stack stack, Checkpointing checkpointing = Checkpointing::none) {
  Recipe recipe;
  recipe.stack = stack;
  recipe.checkpointing = checkpointing;
  recipe.seq = 128;
  return tiny::trace(config, recipe, {.steps = 2, .operands = false});
}

// A layer keeps two sums, two rstd, q, k, v, the attention's result and its logsumexp, gate and up; the head keeps the
// last sum, its rstd, and the logits as their gradient. Ids stay, shifted ones for the rows of the loss are gone.
TEST(NativeMemory, BetweenForwardAndBackwardLiesWhatTheFormulaSays) {
  constexpr Bytes s = 128, h = 32, kv = 16, ffn = 64, vocab = 64, heads = 4, layers = 2;
  const Trace trace = sized(tiny::kLlama, Stack::native);
  const Bytes before = phase(trace, "step2.forward").start, between = phase(trace, "step2.backward").start;
  const Bytes layer = 2 * (s * h * 2 + s * 4) + s * (h + 2 * kv) * 2 + s * h * 2 + heads * s * 4 + 2 * s * ffn * 2;
  const Bytes head = s * h * 2 + s * 4 + s * vocab * 2;
  const Bytes loss = 4;
  EXPECT_EQ(between - before, layers * layer + head + loss);
}

TEST(NativeMemory, IsLessThanTransformersEverywhere) {
  for (const char* config : {tiny::kLlama, tiny::kTied, tiny::kQwen3}) {
    for (const Checkpointing checkpointing : {Checkpointing::none, Checkpointing::full}) {
      const Trace native = sized(config, Stack::native, checkpointing);
      const Trace hf = sized(config, Stack::hf, checkpointing);
      for (const char* name : {"step2.forward", "step2.backward"})
        EXPECT_LT(phase(native, name).peak, phase(hf, name).peak) << name;
    }
  }
}

// Gradients of gate and up lie where those were: backward of an MLP makes none of that size but the product's.
TEST(NativeMemory, GateAndUpAreWrittenOver) {
  const Trace trace = sized(tiny::kLlama, Stack::native);
  const auto made = [&](OpKind op) {
    return std::count_if(trace.storages.begin(), trace.storages.end(),
                         [op](const StorageInfo& storage) { return storage.op == op; });
  };
  EXPECT_EQ(made(OpKind::swiglu_backward), 0);
  EXPECT_EQ(made(OpKind::clone), 0) << "no gradient was shared where it is changed in place";
  EXPECT_EQ(made(OpKind::swiglu), 2 * 2 * 2) << "two layers, two steps, made again in backward";
}

TEST(Remake, IsMadeOnceForAllThatAskAndDiesWithTheLast) {
  Tape tape;
  const Tensor p = leaf(tape, shape_of({4, 4})), w = leaf(tape, shape_of({4, 4}));
  Tensor loss;
  StorageId y = 0;
  {
    const Tensor x = input_of(p);
    const Tensor made = silu(x);
    y = id_of(made);
    tape.remake(made, [x = tape.detach(x)] { return silu(x); });
    const Tensor first = mm(made, w), second = mm(made, w);
    loss = mean_all(first + second);
  }
  EXPECT_FALSE(alive(tape, y)) << "nobody keeps it";
  const std::size_t from = tape.trace().events.size();
  tape.backward(loss);
  EXPECT_EQ(births(tape.trace(), OpKind::silu, from), 1u);
  for (StorageId id = 0; id < tape.trace().storages.size(); ++id) {
    if (tape.trace().storages[id].op != OpKind::silu) continue;
    EXPECT_FALSE(alive(tape, id));
  }
}

TEST(Remake, DoesNothingInsideACheckpoint) {
  Tape tape;
  const Tensor p = leaf(tape, shape_of({4, 4})), w = leaf(tape, shape_of({4, 4}));
  const Tensor x = input_of(p);
  const Tensor loss = mean_all(tape.checkpoint([&tape, x, w] {
    const Tensor made = silu(x);
    tape.remake(made, [x = tape.detach(x)] { return silu(x); });
    return mm(made, w);
  }));
  const std::size_t from = tape.trace().events.size();
  tape.backward(loss);
  EXPECT_EQ(births(tape.trace(), OpKind::silu, from), 1u) << "by the recomputation alone";
}

}  // namespace
}  // namespace ledger
