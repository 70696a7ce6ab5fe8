// Stacks of nn.Linear: weights, and the input of each layer kept for its weight's gradient.
#include <gtest/gtest.h>

#include "core/memory/replay.h"
#include "tests/training/runs.h"

namespace ledger {
namespace {

Recipe plain_recipe(std::uint64_t batch) {
  Recipe recipe;
  recipe.precision = Precision::fp32;
  recipe.batch = batch;
  return recipe;
}

TEST(PlainModel, ForwardKeepsEachLayersInputAndTheOutput) {
  const ModelConfig config = plain_stack({{7, 13, true}, {13, 5, false}});
  const Trace trace = trace_step(config, plain_recipe(4)).value();
  const Replay played = replay(trace, {});
  const Bytes weights = 4 * (7 * 13 + 13 + 13 * 5);
  EXPECT_EQ(played.phases.at(0).end_bytes, weights);
  // Features [4,7], the first output [4,13], the last output [4,5] saved by the square, the loss.
  EXPECT_EQ(played.phases.at(1).end_bytes, weights + 4 * (4 * 7 + 4 * 13 + 4 * 5) + 4);
  // Gradients of every weight, and the features.
  EXPECT_EQ(played.phases.at(2).end_bytes, 2 * weights + 4 * 4 * 7);
}

// The first layer's input needs no gradient: one product of backward fewer.
TEST(PlainModel, NoGradientFlowsIntoTheFeatures) {
  const ModelConfig config = plain_stack({{7, 7, false}, {7, 7, false}, {7, 7, false}});
  const Trace trace =
      trace_step(config, plain_recipe(4), {.steps = 1, .operands = true, .weights = {}, .adamw = {}}).value();
  std::size_t products = 0;
  for (const ledger::Run& run : trace.runs)
    products += run.op == OpKind::mm ? 1 : 0;
  EXPECT_EQ(products, 3u + 3u + 2u);
}

TEST(PlainModel, ParametersCarryTheirLayersNumber) {
  const Trace trace = trace_step(plain_stack({{7, 13, true}, {13, 5, false}}), plain_recipe(1)).value();
  ASSERT_EQ(trace.parameters.size(), 3u);
  EXPECT_EQ(trace.parameters[0].name, "layers.0.linear.weight");
  EXPECT_EQ(trace.parameters[1].name, "layers.0.linear.bias");
  EXPECT_EQ(trace.parameters[1].role, Parameter::Role::bias);
  EXPECT_EQ(trace.parameters[2].name, "layers.1.linear.weight");
}

}  // namespace
}  // namespace ledger
