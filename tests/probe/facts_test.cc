// What must be true of the pieces of a transformer whatever its weights: rotations, norms, causality.
#include <gtest/gtest.h>

#include <cmath>

#include "core/trace/operators.h"
#include "core/training/step.h"
#include "probe/host/run_host.h"

namespace ledger {
namespace {

// The values of the tensor that `build` returns.
template <class Build>
std::vector<double> computed(Build build) {
  Tape tape({.operands = true});
  tape.begin_phase("forward");
  const Tensor result = build(tape);
  const StorageId storage = result.impl()->storage->id;
  const Trace trace = tape.finish();
  std::vector<double> values;
  HostRunOptions options;
  options.executor.poison = true;
  options.executor.on_phase_end = [&](const HostExecutor& executor, std::uint32_t) { values = executor.read(storage); };
  const HostRun run = run_on_host(trace, {}, options);
  if (run.failure) ADD_FAILURE() << run.failure->what;
  return values;
}

constexpr std::uint64_t kPositions = 9, kDim = 8;

// One vector, named `name`, rotated to each position: [1, positions, d].
std::vector<double> rotated(const char* name) {
  return computed([name](Tape& tape) {
    const Dim one{1}, s{kPositions}, d{kDim}, half{kDim / 2};
    const Tensor frequencies = tape.empty(OpKind::load_buffer, {half}, DType::f32);
    tape.run(OpKind::load_buffer, {}, {&frequencies}, {10000, {}});
    const Tensor positions = to(view(arange(tape, s), {one, one, s}), DType::f32);
    const Tensor angles = transpose(bmm(view(frequencies, {one, half, one}), positions), 1, 2);
    const Tensor twice = cat(angles, angles, -1);
    const Tensor x = tape.parameter(name, {one, one, d}, DType::f64, Parameter::Role::matrix, false);
    const Tensor turned = cat(neg(slice(x, -1, kDim / 2, half)), slice(x, -1, 0, half), -1);
    return x * to(cos(twice), DType::f64) + turned * to(sin(twice), DType::f64);
  });
}

double inner(const std::vector<double>& a, std::uint64_t i, const std::vector<double>& b, std::uint64_t j) {
  double total = 0;
  for (std::uint64_t k = 0; k < kDim; ++k)
    total += a[i * kDim + k] * b[j * kDim + k];
  return total;
}

TEST(Facts, RotaryEmbeddingKeepsLengths) {
  const std::vector<double> q = rotated("q");
  ASSERT_EQ(q.size(), kPositions * kDim);
  for (std::uint64_t i = 1; i < kPositions; ++i)
    EXPECT_NEAR(inner(q, i, q, i), inner(q, 0, q, 0), 1e-8);
}

TEST(Facts, RotaryEmbeddingMakesScoresDependOnDistancesOnly) {
  const std::vector<double> q = rotated("q"), k = rotated("k");
  for (std::uint64_t i = 2; i < kPositions; ++i)
    EXPECT_NEAR(inner(q, i, k, i - 2), inner(q, 2, k, 0), 1e-8);
  EXPECT_GT(std::fabs(inner(q, 5, k, 0) - inner(q, 2, k, 0)), 1e-5);
}

TEST(Facts, RmsNormIgnoresTheScaleOfItsInput) {
  const auto norm = [](double scale) {
    return computed([scale](Tape& tape) {
      const Tensor x = tape.parameter("x", {{3}, {50}}, DType::f32, Parameter::Role::matrix, false) * scale;
      return x * rsqrt(mean_last(pow(x, 2)));
    });
  };
  const std::vector<double> once = norm(1);
  EXPECT_EQ(once, norm(4)) << "a power of two changes no bit";
  double squares = 0;
  for (std::size_t i = 0; i < 50; ++i)
    squares += once[i] * once[i];
  EXPECT_NEAR(squares, 50, 1e-4);
}

// Runs a model with one token exchanged and keeps what log_softmax made: [b*s, V].
class OneTokenChanged : public HostExecutor {
 public:
  OneTokenChanged(const Trace& trace, HostStore& store, std::size_t position)
      : HostExecutor(trace, store), trace_(trace), position_(position) {}

  void run(std::uint32_t index) override {
    HostExecutor::run(index);
    const Run& run = trace_.runs[index];
    const StorageId out = trace_.views[run.first_view + run.input_count()].storage;
    if (run.op == OpKind::log_softmax) log_probabilities = read(out);
    if (run.op != OpKind::load_tokens) return;
    std::vector<double> tokens = read(out);
    if (position_ < tokens.size()) tokens[position_] = tokens[position_] == 0 ? 1 : 0;
    write(out, tokens);
  }

  std::vector<double> log_probabilities;

 private:
  const Trace& trace_;
  std::size_t position_;
};

TEST(Facts, ChangingATokenLeavesEarlierPredictionsBitForBit) {
  constexpr std::uint64_t kSeq = 70, kVocab = 31, kChanged = 41;
  Result<ModelConfig> config = read_model_config(
      R"({"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
          "num_key_value_heads": 2, "intermediate_size": 48, "vocab_size": 31})");
  ASSERT_TRUE(config.ok());
  Recipe recipe;
  recipe.seq = kSeq;
  for (const DType weights : {DType::f32, DType::bf16}) {
    TraceOptions options;
    options.steps = 1;
    options.operands = true;
    options.weights = weights;
    Result<Trace> trace = trace_step(config.value(), recipe, options);
    ASSERT_TRUE(trace.ok());
    const Trace& traced = trace.value();
    const auto run = [&](std::size_t position) {
      HostStore store;
      OneTokenChanged executor(traced, store, position);
      replay(traced, {}, &executor, &store);
      EXPECT_FALSE(executor.failure());
      return executor.log_probabilities;
    };
    const std::vector<double> before = run(kSeq), after = run(kChanged);
    ASSERT_EQ(before.size(), kSeq * kVocab);
    for (std::uint64_t i = 0; i < kChanged * kVocab; ++i)
      ASSERT_EQ(before[i], after[i]) << "position " << i / kVocab;
    EXPECT_NE(before[kChanged * kVocab], after[kChanged * kVocab]);
    EXPECT_NE(before.back(), after.back());
  }
}

}  // namespace
}  // namespace ledger
