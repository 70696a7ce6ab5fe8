// The executor distrusts traces: lifetimes, bounds and memory around tensors are checked, and the first fault is named.
#include "probe/host/host_executor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

namespace ledger {
namespace {

constexpr std::uint64_t kBase = std::uint64_t{1} << 40;

// out = a + a on two vectors of three floats; storage 2 is the loss of a step.
class HostExecutorTest : public testing::Test {
 protected:
  HostExecutorTest() {
    trace.has_operands = true;
    trace.names = {"", "model.mlp"};
    trace.phases = {"step1.forward", "step1.backward"};
    for (int i = 0; i < 3; ++i) {
      StorageInfo& storage = trace.storages.emplace_back();
      storage.bytes = 12;
      storage.op = OpKind::mul;
      storage.scope = 1;
      storage.layer = 4;
    }
    add_run(OpKind::add, {0, 0}, 1);
    EXPECT_TRUE(store.reserve(kBase, kMiB));
  }

  static View vector_of(StorageId storage) {
    return {.storage = storage, .dtype = DType::f32, .rank = 1, .sizes = {3}, .strides = {1}};
  }

  void add_run(OpKind op, std::initializer_list<StorageId> inputs, StorageId output) {
    ledger::Run run{.op = op,
                    .inputs = static_cast<std::uint8_t>(inputs.size()),
                    .outputs = 1,
                    .first_view = static_cast<std::uint32_t>(trace.views.size()),
                    .attr = {}};
    for (const StorageId input : inputs)
      trace.views.push_back(vector_of(input));
    trace.views.push_back(vector_of(output));
    trace.runs.push_back(run);
  }

  static std::uint64_t address(StorageId storage) { return kBase + 4096 * storage; }

  HostExecutor with_all_born(HostExecutor::Options options = {.poison = true}) {
    HostExecutor executor(trace, store, std::move(options));
    for (StorageId id = 0; id < 3; ++id)
      executor.born(id, address(id));
    executor.write(0, std::vector<double>{1, 2, 3});
    return executor;
  }

  static void expect_failure(const HostExecutor& executor, const char* text, StorageId storage) {
    ASSERT_TRUE(executor.failure());
    EXPECT_NE(executor.failure()->what.find(text), std::string::npos) << executor.failure()->what;
    EXPECT_EQ(executor.failure()->storage, storage);
  }

  Trace trace;
  HostStore store;
};

TEST_F(HostExecutorTest, RunsAnOperatorOnItsOperands) {
  HostExecutor executor = with_all_born();
  executor.run(0);
  ASSERT_FALSE(executor.failure()) << executor.failure()->what;
  EXPECT_EQ(executor.read(1), (std::vector<double>{2, 4, 6}));
}

TEST_F(HostExecutorTest, ReadingBeforeBirthIsAFailure) {
  HostExecutor executor(trace, store);
  executor.born(1, address(1));
  executor.run(0);
  expect_failure(executor, "storage 0 (made by mul.Tensor in model.mlp, layer 4) is used before its birth", 0);
}

TEST_F(HostExecutorTest, ReadingAfterDeathIsAFailure) {
  HostExecutor executor = with_all_born();
  executor.died(0);
  executor.run(0);
  expect_failure(executor, "is used after it died; at add.Tensor, run 0", 0);
  EXPECT_TRUE(executor.read(0).empty());
}

TEST_F(HostExecutorTest, WritingToTheDeadIsAFailure) {
  HostExecutor executor = with_all_born();
  executor.died(1);
  executor.run(0);
  expect_failure(executor, "is used after it died", 1);
}

TEST_F(HostExecutorTest, DyingTwiceIsAFailure) {
  HostExecutor executor = with_all_born();
  executor.died(1);
  executor.died(1);
  expect_failure(executor, "dies without being alive", 1);
}

TEST_F(HostExecutorTest, AViewBeyondItsStorageIsAFailure) {
  trace.views[0].offset = 1;
  HostExecutor executor = with_all_born();
  executor.run(0);
  expect_failure(executor, "reaches beyond the end", 0);
}

TEST_F(HostExecutorTest, MemoryThatWasNeverReservedIsAFailure) {
  HostExecutor executor(trace, store);
  executor.born(0, kBase - kMiB);
  expect_failure(executor, "no memory was reserved", 0);
}

TEST_F(HostExecutorTest, NothingRunsAfterAFailure) {
  HostExecutor executor = with_all_born();
  executor.died(2);
  executor.died(2);
  executor.run(0);
  EXPECT_TRUE(std::isnan(executor.read(1)[0]));
}

TEST_F(HostExecutorTest, ATraceWithoutOperandsIsAFailure) {
  trace.has_operands = false;
  HostExecutor executor(trace, store);
  expect_failure(executor, "without operands", kNoStorage);
}

TEST_F(HostExecutorTest, PoisonIsNaNBeforeTheFirstWriteAndAfterDeath) {
  HostExecutor executor = with_all_born();
  EXPECT_TRUE(std::isnan(executor.read(1)[0]));
  executor.died(0);
  float value = 0;
  std::memcpy(&value, store.locate(address(0), 4), 4);
  EXPECT_TRUE(std::isnan(value));
}

TEST_F(HostExecutorTest, AWritePastTheEndIsFoundAtDeath) {
  HostExecutor executor = with_all_born();
  *store.locate(address(1) + 12, 1) = std::byte{0};
  executor.died(1);
  expect_failure(executor, "wrote past the end", 1);
}

TEST_F(HostExecutorTest, EmptyOperandsNeedNoStorage) {
  for (View& view : trace.views) {
    view.storage = kNoStorage;
    view.sizes[0] = 0;
  }
  HostExecutor executor(trace, store);
  executor.run(0);
  EXPECT_FALSE(executor.failure());
}

TEST_F(HostExecutorTest, LossesAreReadWhenTheyAreWrittenAndOutliveTheirTensor) {
  trace.storages[2].bytes = 4;
  trace.losses = {2, 1};
  add_run(OpKind::sum, {0}, 2);
  View& scalar = trace.views.back();
  scalar.rank = 0;
  HostExecutor executor = with_all_born();
  executor.run(1);
  executor.died(2);
  ASSERT_FALSE(executor.failure()) << executor.failure()->what;
  EXPECT_EQ(executor.losses()[0], 6);
  EXPECT_TRUE(std::isnan(executor.losses()[1])) << "its step has not run";
}

TEST_F(HostExecutorTest, EachPhaseIsReportedAsItEnds) {
  std::vector<std::uint32_t> ended;
  HostExecutor executor =
      with_all_born({.on_phase_end = [&](const HostExecutor&, std::uint32_t phase) { ended.push_back(phase); }});
  executor.mark(0);
  EXPECT_TRUE(ended.empty());
  executor.mark(1);
  executor.finish();
  executor.finish();
  EXPECT_EQ(ended, (std::vector<std::uint32_t>{0, 1}));
  EXPECT_GE(executor.phase_ms()[0], 0);
}

}  // namespace
}  // namespace ledger
