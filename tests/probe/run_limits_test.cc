// Runs that end before their time keep what was measured: --budget between two steps, --timeout and signals between two
// operators, a thread where an operator does not come back. And --check, against predictions that are wrong.
#include "probe/run_limits.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>

#include "core/base/json.h"
#include "probe/check.h"
#include "probe/host/run_host.h"
#include "probe/measured.h"
#include "tiny_models.h"

namespace ledger {
namespace {

using std::chrono::milliseconds;

constexpr std::uint32_t kSteps = 4;

Prediction predicted() {
  Recipe recipe;
  recipe.seq = 8;
  PredictOptions options{.steps = kSteps, .operands = true, .record_addresses = true};
  return predict_run(read_model_config(tiny::kLlama).value(), recipe, options).value();
}

HostRun run(const Prediction& p, RunLimits limits, HostExecutor::Options executor = {}) {
  HostRunOptions options;
  options.limits = std::move(limits);
  options.executor = std::move(executor);
  const ReplayOptions replay_options{.allocator = allocator_options(p.recipe), .record_addresses = true};
  return run_on_host(p.trace, replay_options, options);
}

// The samples are the first of the whole prediction's.
void expect_beginning(const HostRun& got, const Prediction& p) {
  ASSERT_FALSE(got.replay.samples.empty());
  ASSERT_LT(got.replay.samples.size(), p.replay.samples.size());
  for (std::size_t i = 0; i < got.replay.samples.size(); ++i) {
    ASSERT_EQ(got.replay.samples[i].tensor_bytes, p.replay.samples[i].tensor_bytes) << i;
    ASSERT_EQ(got.replay.samples[i].reserved, p.replay.samples[i].reserved) << i;
  }
}

Json written(const Prediction& p, const MeasuredResult& run) {
  const Result<Json> json = parse_json(write_measured({&p, &run, kSteps, 1, nullptr}));
  EXPECT_TRUE(json.ok());
  return json.ok() ? json.value() : Json();
}

TEST(RunLimits, ABudgetEndsBetweenTwoStepsAndTheFirstIsAlwaysDone) {
  const Prediction p = predicted();
  const HostRun got = run(p, {.budget_s = 1e-9});
  EXPECT_EQ(got.status, RunStatus::timeout);
  EXPECT_STREQ(got.stopped_by, "--budget");
  EXPECT_FALSE(got.failure);
  EXPECT_EQ(p.trace.phases[got.phases_done], "step2.forward");
  EXPECT_EQ(p.trace.phases[got.replay.phases.back().phase], "step1.zero_grad") << "nothing of the next step";
  expect_beginning(got, p);
  EXPECT_TRUE(std::isfinite(got.losses[0]));
  EXPECT_TRUE(std::isnan(got.losses[1]));
  EXPECT_EQ(known_losses(p.trace, got), std::vector<double>{got.losses[0]});
  const Json json = written(p, got);
  EXPECT_EQ(json.find("steps")->items().size(), 1u);
  EXPECT_EQ(json.find("status")->as_string(), "timeout");
  const Json& timeline = *json.find("timeline");
  EXPECT_EQ(timeline.find("phases")->items().back().find("name")->as_string(), "step1.zero_grad");
  const Json& last = timeline.find("points")->items().back();
  EXPECT_EQ(last.find("event")->as_unsigned(), got.replay.samples.back().event);
  EXPECT_EQ(last.find("reserved_bytes")->as_unsigned(), got.replay.samples.back().reserved);
}

TEST(RunLimits, ABudgetThatIsLargeEnoughChangesNothing) {
  const Prediction p = predicted();
  const HostRun got = run(p, {.timeout_s = 3600, .budget_s = 3600});
  EXPECT_EQ(got.status, RunStatus::ok);
  EXPECT_STREQ(got.stopped_by, "");
  EXPECT_EQ(got.phases_done, p.trace.phases.size());
  EXPECT_TRUE(identical(p.replay, got.replay));
  EXPECT_EQ(written(p, got).find("steps")->items().size(), kSteps);
}

// The next step would need as long as the longest so far.
TEST(RunLimits, ABudgetCountsTheLongestStep) {
  const Prediction p = predicted();
  const auto slow = [&](const HostExecutor&, std::uint32_t phase) {
    if (p.trace.phases[phase] == "step2.forward") std::this_thread::sleep_for(milliseconds(300));
  };
  const HostRun got = run(p, {.budget_s = 0.5}, {.on_phase_end = slow});
  EXPECT_EQ(got.status, RunStatus::timeout);
  EXPECT_EQ(p.trace.phases[got.phases_done], "step3.forward");
}

TEST(RunLimits, ATimeoutEndsWithinAStep) {
  const Prediction p = predicted();
  const auto slow = [&](const HostExecutor&, std::uint32_t phase) {
    if (p.trace.phases[phase] == "step2.forward") std::this_thread::sleep_for(milliseconds(400));
  };
  const HostRun got = run(p, {.timeout_s = 0.3}, {.on_phase_end = slow});
  EXPECT_EQ(got.status, RunStatus::timeout);
  EXPECT_STREQ(got.stopped_by, "--timeout");
  EXPECT_EQ(p.trace.phases[got.phases_done], "step2.backward");
  expect_beginning(got, p);
  const Json json = written(p, got);
  EXPECT_EQ(json.find("steps")->items().size(), 2u) << "the second was begun";
  EXPECT_FALSE(json.find("prediction")->find("events_identical")->as_bool().value());
}

TEST(RunLimits, AnInterruptionKeepsWhatWasMeasured) {
  const Prediction p = predicted();
  int asked = 0;
  const HostRun got = run(p, {.interrupted = [&] { return ++asked > 500; }});
  EXPECT_EQ(got.status, RunStatus::interrupted);
  EXPECT_EQ(asked, 501);
  expect_beginning(got, p);
  EXPECT_EQ(written(p, got).find("status")->as_string(), "interrupted");
}

TEST(RunLimits, WhatDoesNotComeBackIsSaidFromAnotherThread) {
  const Prediction p = predicted();
  std::atomic<bool> told = false;
  MeasuredResult part;
  const auto hung = [&](const MeasuredResult& so_far) {
    part = so_far;
    told = true;
  };
  const auto hangs = [&](const HostExecutor&, std::uint32_t phase) {
    for (int i = 0; p.trace.phases[phase] == "step2.backward" && !told && i < 2000; ++i)
      std::this_thread::sleep_for(milliseconds(5));
  };
  run(p, {.timeout_s = 0.2, .hung = hung, .grace_s = 0.1}, {.on_phase_end = hangs});
  ASSERT_TRUE(told);
  EXPECT_EQ(part.status, RunStatus::timeout);
  EXPECT_STREQ(part.stopped_by, "--timeout, while an operator did not come back");
  EXPECT_EQ(p.trace.phases[part.phases_done], "step2.backward") << "its end was not seen";
  EXPECT_TRUE(std::isfinite(part.losses[1]));
  EXPECT_EQ(written(p, part).find("steps")->items().size(), 2u);
}

TEST(RunLimits, EvenBeforeAnythingWasMeasuredThereIsAFile) {
  const Prediction p = predicted();
  MeasuredResult nothing;
  std::atomic<bool> told = false;
  const auto hung = [&](const MeasuredResult& so_far) {
    nothing = so_far;
    told = true;
  };
  const auto hangs = [&] {
    for (int i = 0; !told && i < 2000; ++i)
      std::this_thread::sleep_for(milliseconds(5));
    return false;
  };
  run(p, {.timeout_s = 1e-3, .interrupted = hangs, .hung = hung, .grace_s = 0});
  ASSERT_TRUE(told);
  EXPECT_EQ(nothing.phases_done, 0u);
  const Json json = written(p, nothing);
  EXPECT_EQ(json.find("steps")->items().size(), 0u);
  EXPECT_EQ(json.find("status")->as_string(), "timeout");
}

TEST(Watchdog, BarksOnceAndNotWhenItIsCalledOff) {
  std::atomic<int> barks = 0;
  {
    Watchdog dog(0.01, [&] { ++barks; });
    for (int i = 0; i < 2000 && barks == 0; ++i)
      std::this_thread::sleep_for(milliseconds(5));
  }
  EXPECT_EQ(barks, 1);
  const auto began = std::chrono::steady_clock::now();
  {
    Watchdog dog(3600, [&] { ++barks; });
  }
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(60));
  EXPECT_EQ(barks, 1);
}

TEST(Check, FailsWhereTheMeasuredPeakIsFurtherOffThanAsked) {
  const Prediction p = predicted();
  const HostRun got = run(p, {});
  EXPECT_EQ(check_of(p, got, 0), "") << "the host measures what was predicted";
  Prediction doctored = p;
  doctored.replay.peak_allocated_bytes = p.replay.peak_allocated_bytes / 100 * 93;
  EXPECT_EQ(check_of(doctored, got, 10), "");
  EXPECT_EQ(check_of(doctored, got, 5), "the measured peak of allocated bytes is 7.53 % above the predicted one.");
  doctored.replay.peak_allocated_bytes = p.replay.peak_allocated_bytes * 2;
  EXPECT_EQ(check_of(doctored, got, 49), "the measured peak of allocated bytes is 50.00 % below the predicted one.");
}

TEST(Check, FailsWhereALossIsNoNumber) {
  const Prediction p = predicted();
  HostRun got = run(p, {});
  got.losses.back() = std::numeric_limits<double>::infinity();
  EXPECT_EQ(check_of(p, got, 100), "the loss is not a finite number.");
}

}  // namespace
}  // namespace ledger
