// Compute by phase, read off the trace, against the published closed forms.
#include "core/answer/flops.h"

#include <gtest/gtest.h>

#include "tests/training/runs.h"

namespace ledger {
namespace {

StepFlops flops_of(const ModelConfig& config, const Settings& settings) {
  const Result<Trace> trace = trace_step(config, recipe_of(settings), {.operands = true, .weights = {}, .adamw = {}});
  return step_flops(trace.value()).value_or(StepFlops{});
}

// odd_llama: H 48, Dq 96, Dkv 32, F 77, V 259, L 2; recipe_of: b 3, s 19, so T = 57.
constexpr std::uint64_t kTokens = 57;
constexpr std::uint64_t kLinearWeights = 2 * 48 * 96 + 2 * 48 * 32 + 3 * 48 * 77;  // 23 376 of a layer
constexpr std::uint64_t kAttention = 4 * 3 * 19 * 19 * 96;                         // 4 b s s Dq

TEST(Flops, ForwardIsTwoPerWeightAndToken) {
  const StepFlops flops = flops_of(odd_llama(), {});
  EXPECT_EQ(flops.layers.forward, 2 * (2 * kTokens * kLinearWeights + kAttention));
  // The head, and the rotary table's outer product [d/2,1] x [1,s].
  EXPECT_EQ(flops.rest.forward, 2 * kTokens * 48 * 259 + 2 * 8 * 19);
}

TEST(Flops, BackwardIsTwiceForward) {
  const StepFlops flops = flops_of(odd_llama(), {});
  EXPECT_EQ(flops.layers.backward, 2 * flops.layers.forward);
  EXPECT_EQ(flops.rest.backward, 2 * 2 * kTokens * 48 * 259);
  EXPECT_EQ(flops.layers.recompute, 0u);
}

TEST(Flops, PrecisionDoesNotChangeTheCount) {
  EXPECT_EQ(flops_of(odd_llama(), {{"precision", "amp-bf16"}}).layers.total(),
            flops_of(odd_llama(), {}).layers.total());
}

// PyTorch stops a recomputation when the last saved tensor is there, so down_proj is not computed again.
TEST(Flops, CheckpointingComputesALayerAgainButForItsLastProduct) {
  const StepFlops flops = flops_of(odd_llama(), {{"checkpointing", "full"}});
  const std::uint64_t down_proj = 2 * 2 * kTokens * 48 * 77;
  EXPECT_EQ(flops.layers.recompute, flops.layers.forward - down_proj);
  EXPECT_EQ(flops.layers.backward, 2 * flops.layers.forward);
  EXPECT_EQ(flops.rest.recompute, 0u);
}

// The first layer's input needs no gradient: 2 + 2 per weight instead of 2 + 4.
TEST(Flops, PlainStacksCountTheirFirstLayersInputOnce) {
  const StepFlops flops = flops_of(plain_stack({{7, 7, true}, {7, 7, true}, {7, 7, true}}), {{"precision", "fp32"}});
  const std::uint64_t layer = 2 * 3 * 7 * 7;
  EXPECT_EQ(flops.layers.forward, 3 * layer);
  EXPECT_EQ(flops.layers.backward, 5 * layer);
}

TEST(Flops, WithoutOperandsThereIsNothingToCount) {
  EXPECT_FALSE(step_flops(trace_step(odd_llama(), recipe_of({})).value()));
}

}  // namespace
}  // namespace ledger
