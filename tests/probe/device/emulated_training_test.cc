// Whole training steps through the device executor and the device kernels' bodies, on the emulated device: the losses
// and gradients must be the host's but for the order of sums, and memory must not differ at all.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "emulated_device.h"
#include "probe/device_run.h"
#include "probe/host/run_host.h"
#include "probe/host/strips.h"
#include "probe/ranks/stand_in.h"
#include "step_cases.h"
#include "tests/probe/tiny_models.h"

namespace ledger {
namespace {

struct EmulatedRun {
  Replay replay;
  std::vector<double> losses;
  std::optional<RunFailure> failure;
  std::uint64_t products = 0;
};

EmulatedRun run_emulated(const Trace& trace, const ReplayOptions& options, bool with_library, RankSeat seat = {}) {
  emulated::EmulatedDevice device(with_library);
  device::DeviceExecutor executor(trace, device, {.poison = true, .seat = seat});
  EmulatedRun result;
  result.replay = replay(trace, options, &executor, &device.store());
  executor.finish();
  result.losses = executor.losses();
  result.failure = executor.failure();
  result.products = device.library.products;
  return result;
}

class EmulatedSteps : public testing::TestWithParam<StepCase> {};

INSTANTIATE_TEST_SUITE_P(All, EmulatedSteps, testing::ValuesIn(kSteps), [](const auto& c) { return c.param.name; });

TEST_P(EmulatedSteps, LoseWhatTheHostLoses) {
  Recipe recipe;
  recipe.batch = 2;
  recipe.seq = 12;
  GetParam().set(recipe);
  const Trace trace = tiny::trace(GetParam().config, recipe, {.steps = 3});
  ASSERT_FALSE(trace.losses.empty());
  ReplayOptions options;
  options.record_addresses = true;
  const HostRun host = run_on_host(trace, options);
  ASSERT_FALSE(host.failure) << host.failure->what;
  for (const bool with_library : {true, false}) {
    const EmulatedRun got = run_emulated(trace, options, with_library);
    ASSERT_FALSE(got.failure) << got.failure->what;
    ASSERT_EQ(got.losses.size(), host.losses.size());
    for (std::size_t i = 0; i < got.losses.size(); ++i)
      EXPECT_NEAR(got.losses[i], host.losses[i], 2e-3 * host.losses[i]) << "loss " << i;
    EXPECT_EQ(got.products > 0, with_library);
    EXPECT_EQ(got.replay.addresses, host.replay.addresses);
    EXPECT_EQ(got.replay.peak_reserved_bytes, host.replay.peak_reserved_bytes);
  }
}

constexpr StepCase kShared[] = {
    {"ddp", tiny::kLlama, [](Recipe&) {}},
    {"fsdp1", tiny::kLlama, [](Recipe& r) { r.fsdp = 1; }},
    {"fsdp2", tiny::kLlama, [](Recipe& r) { r.fsdp = 2; }},
    {"zero1", tiny::kLlama, [](Recipe& r) { r.zero = 1; }},
    {"zero2", tiny::kLlama, [](Recipe& r) { r.zero = 2; }},
    {"zero3", tiny::kLlama, [](Recipe& r) { r.zero = 3; }},
    {"torchtitan_tp", tiny::kLlama,
     [](Recipe& r) {
       r.stack = Stack::torchtitan;
       r.attention = Attention::sdpa;
       r.dp = 1;
       r.tp = 2;
       r.sequence_parallel = true;
     }},
    {"torchtitan_ep", tiny::kTitanExperts,
     [](Recipe& r) {
       r.stack = Stack::torchtitan_0_2_0;
       r.precision = Precision::fp32;
       r.fsdp = 2;
       r.units = Units::titan;
       r.ep = 2;
       r.checkpointing = Checkpointing::selective;
     }},
    {"megatron_tp", tiny::kLlama,
     [](Recipe& r) {
       r.stack = Stack::megatron;
       r.precision = Precision::megatron_bf16;
       r.dp = 1;
       r.tp = 2;
       r.sequence_parallel = true;
     }},
    {"megatron_pp", tiny::kLlama,
     [](Recipe& r) {
       r.stack = Stack::megatron;
       r.precision = Precision::megatron_bf16;
       r.dp = 1;
       r.pp = 2;
       r.micro_batches = 2;
     }},
    {"megatron_zero1", tiny::kLlama,
     [](Recipe& r) {
       r.stack = Stack::megatron;
       r.precision = Precision::megatron_bf16;
       r.zero = 1;
     }},
    {"megatron_cp", tiny::kLlama,
     [](Recipe& r) {
       r.stack = Stack::megatron;
       r.precision = Precision::megatron_bf16;
       r.dp = 1;
       r.cp = 2;
     }},
};

class EmulatedStandIns : public testing::TestWithParam<StepCase> {};
INSTANTIATE_TEST_SUITE_P(All, EmulatedStandIns, testing::ValuesIn(kShared), [](const auto& c) { return c.param.name; });

// In the place of rank 1 of 2, with copies for what the other would send: memory as predicted, the same copies as the
// host's.
TEST_P(EmulatedStandIns, DoWhatTheHostsDo) {
  Recipe recipe;
  recipe.dp = 2;
  recipe.seq = 12;
  GetParam().set(recipe);
  const Trace trace = tiny::trace(GetParam().config, recipe, {.steps = 3, .rank = 1});
  ReplayOptions options;
  options.record_addresses = true;
  StandIn ranks(1, 2);
  HostRunOptions host_options;
  host_options.executor.ranks = &ranks;
  const HostRun host = run_on_host(trace, options, host_options);
  ASSERT_FALSE(host.failure) << host.failure->what;
  const EmulatedRun got = run_emulated(trace, options, true, {1, 2});
  ASSERT_FALSE(got.failure) << got.failure->what;
  ASSERT_EQ(got.losses.size(), host.losses.size());
  for (std::size_t i = 0; i < got.losses.size(); ++i)
    EXPECT_NEAR(got.losses[i], host.losses[i], 2e-3 * host.losses[i]) << "loss " << i;
  EXPECT_EQ(got.replay.addresses, host.replay.addresses);
  EXPECT_EQ(got.replay.addresses, replay(trace, options).addresses);
}

// A rank between others that says what it was asked to exchange.
class Neighbours : public StandIn {
 public:
  struct Seen {
    std::size_t both_ways = 0, one_way = 0, messages = 0, spoilt = 0;  // batches; messages; numbers sent that are NaN
    std::uint64_t apart = 0;                                           // of such neighbours alone; 0: of all
  };
  Neighbours(std::uint64_t rank, std::uint64_t world, Seen& seen) : StandIn(rank, world), seen_(seen) {}

  bool messages(std::span<const Message> batch) override {
    if (seen_.apart != 0 && seen_.apart != apart_) return true;
    const auto outgoing = [](const Message& m) { return m.outgoing; };
    const auto out = static_cast<std::size_t>(std::count_if(batch.begin(), batch.end(), outgoing));
    const bool both = out != 0 && out != batch.size();
    ++(both ? seen_.both_ways : seen_.one_way);
    seen_.messages += batch.size();
    for (const Message& one : batch) {
      if (!one.outgoing) std::memset(one.buffer.data, 0, static_cast<std::size_t>(one.buffer.bytes()));
      for (std::uint64_t i = 0; one.outgoing && i < one.buffer.count; ++i) {
        const std::byte* const at = one.buffer.data + i * element_bytes(one.buffer.dtype);
        seen_.spoilt += std::isnan(host::load_one<double>(at, one.buffer.dtype)) ? 1 : 0;
      }
    }
    return true;
  }
  std::unique_ptr<Communicator> among(const std::vector<std::uint64_t>& members) override {
    auto some = std::make_unique<Neighbours>(place_among(members, rank()), members.size(), seen_);
    if (members.size() > 1) some->apart_ = members[1] - members[0];
    return some;
  }

 private:
  Seen& seen_;
  std::uint64_t apart_ = 0;
};

Recipe two_stages(std::uint64_t micro_batches) {
  Recipe recipe;
  recipe.stack = Stack::megatron;
  recipe.precision = Precision::megatron_bf16;
  recipe.seq = 12;
  recipe.pp = 2;
  recipe.micro_batches = micro_batches;
  return recipe;
}

// The first of two stages: what it sends is given back before the answer comes, whose memory may be the same.
TEST(EmulatedMessages, ThatFollowEachOtherGoTogetherAndAreNotSpoilt) {
  const Recipe recipe = two_stages(4);
  const Trace trace = tiny::trace(tiny::kLlama, recipe, {.steps = 2});
  emulated::EmulatedDevice device;
  Neighbours::Seen seen;
  Neighbours ranks(0, 2, seen);
  device::DeviceExecutor executor(trace, device, {.poison = true, .seat = {0, 2}, .ranks = &ranks});
  replay(trace, {}, &executor, &device.store());
  executor.finish();
  ASSERT_FALSE(executor.failure()) << executor.failure()->what;
  EXPECT_EQ(seen.messages, 2u * 2 * 4) << "an activation and a gradient, of each micro-batch and step";
  EXPECT_EQ(seen.both_ways, 2u * 3) << "all but the first activation of a step and the last gradient";
  EXPECT_EQ(seen.spoilt, 0u);
  EXPECT_GT(device.put_aside_count, 0u);
}

// Sends between stages wait until something was received, and messages around rings go on meanwhile, both ways at once.
TEST(EmulatedMessages, AroundARingDoNotMindThoseThatWaitForTheirTurn) {
  Recipe recipe = two_stages(2);
  recipe.cp = 2;
  const Trace trace = tiny::trace(tiny::kLlama, recipe, {.steps = 1});
  using enum StageTurn::Kind;
  StageTurns late = {{receive, 1, 1, 0}, {send, 1, 0, 0}, {send, 1, 0, 0}, {receive, 1, 1, 0}};
  for (const StageTurn& turn : stage_turns(trace)) {
    if (turn.kind == together) late.push_back(turn);
  }
  emulated::EmulatedDevice device;
  Neighbours::Seen seen;
  seen.apart = 1;
  Neighbours ranks(0, 4, seen);
  device::DeviceExecutor executor(trace, device, {.poison = true, .seat = {0, 4}, .ranks = &ranks, .messages = late});
  replay(trace, {}, &executor, &device.store());
  executor.finish();
  ASSERT_FALSE(executor.failure()) << executor.failure()->what;
  EXPECT_GT(seen.both_ways, 0u);
  EXPECT_EQ(seen.one_way, 0u);
  EXPECT_GT(device.put_aside_count, 0u) << "the first send has waited";
}

// A GPU that is full but for what the allocator has.
class FullDevice : public emulated::EmulatedDevice {
 public:
  std::byte* put_aside(std::size_t, const std::byte*, Bytes) override { return nullptr; }
};

TEST(EmulatedMessages, ThatNoCopyCanBeMadeOfAreAMatterOfMemory) {
  const Recipe recipe = two_stages(4);
  const Trace trace = tiny::trace(tiny::kLlama, recipe, {.steps = 1});
  FullDevice device;
  Neighbours::Seen seen;
  Neighbours ranks(0, 2, seen);
  const DeviceRun run = run_on_device(trace, {}, device, {.seat = {0, 2}, .ranks = &ranks});
  EXPECT_EQ(run.status, RunStatus::out_of_memory);
  ASSERT_TRUE(run.failure && run.failure->shortage);
  EXPECT_STREQ(run.failure->shortage->by, "messages");
  EXPECT_EQ(run.failure->shortage->requested_bytes, 12u * 32 * 2) << "a micro-batch's activation in 16 bits";
  EXPECT_GT(run.failure->shortage->device_bytes_in_use, run.replay.allocator.reserved);
}

// fp32 throughout: only the order of sums differs.
TEST(EmulatedTraining, StaysWithTheHostForTwentySteps) {
  Recipe recipe;
  recipe.precision = Precision::fp32;
  recipe.batch = 2;
  recipe.seq = 16;
  const Trace trace = tiny::trace(tiny::kLlama, recipe, {.steps = 20});
  const HostRun host = run_on_host(trace, {});
  const EmulatedRun got = run_emulated(trace, {}, true);
  ASSERT_FALSE(got.failure) << got.failure->what;
  EXPECT_LT(got.losses.back(), 0.5 * got.losses.front()) << "it learns";
  for (std::size_t i = 0; i < got.losses.size(); ++i)
    EXPECT_NEAR(got.losses[i], host.losses[i], 1e-4 * host.losses[i]) << "step " << i;
}

TEST(EmulatedTraining, StopsWhereItIsAskedTo) {
  const Trace trace = tiny::trace(tiny::kLlama, Recipe{.seq = 8}, {.steps = 1});
  emulated::EmulatedDevice device;
  int asked = 0;
  device::DeviceExecutor executor(trace, device, {.stop = [&] { return ++asked > 20; }});
  replay(trace, {}, &executor, &device.store());
  executor.finish();
  ASSERT_TRUE(executor.failure());
  EXPECT_TRUE(executor.failure()->what.starts_with(device::DeviceExecutor::kStopped));
  EXPECT_EQ(asked, 21);
}

TEST(EmulatedTraining, HandsTheTracesWorkspaceToTheLibrary) {
  const Result<ModelConfig> config = read_model_config(tiny::kLlama);
  TraceOptions options;
  options.operands = true;
  options.steps = 1;
  options.cublas_workspace_bytes = 8 * kMiB;
  const Result<Trace> trace = trace_step(config.value(), Recipe{.seq = 8}, options);
  ASSERT_TRUE(trace.ok());
  emulated::EmulatedDevice device;
  Bytes most = 0;
  device::DeviceExecutor executor(trace.value(), device, {.on_phase_end = [&](device::DeviceExecutor&, std::uint32_t) {
                                    most = std::max(most, device.workspace_bytes);
                                  }});
  replay(trace.value(), {}, &executor, &device.store());
  executor.finish();
  EXPECT_FALSE(executor.failure());
  EXPECT_EQ(most, 8 * kMiB);
}

}  // namespace
}  // namespace ledger
