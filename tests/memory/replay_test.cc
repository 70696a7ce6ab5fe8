#include "core/memory/replay.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/memory/census.h"
#include "trace_builder.h"

namespace ledger {
namespace {

// load: 10 MiB weights. forward: 30 MiB, of which 20 die. backward: 8 MiB scratch only.
Trace three_phases() {
  TraceBuilder builder;
  builder.mark("load");                                                    // 0
  builder.alloc(10 * kMiB, Category::weights);                             // 1
  builder.mark("forward");                                                 // 2
  const StorageId big = builder.alloc(20 * kMiB);                          // 3
  const StorageId kept = builder.alloc(10 * kMiB);                         // 4: 40 MiB
  builder.free(big);                                                       // 5
  builder.label(kept, Category::logits);                                   // 6
  builder.mark("backward");                                                // 7: 20 MiB
  const StorageId scratch = builder.alloc(8 * kMiB, Category::workspace);  // 8
  builder.free(scratch);                                                   // 9
  return builder.trace;
}

TEST(Replay, PhasesStartPeakAndEnd) {
  const Replay result = replay(three_phases(), {});
  ASSERT_EQ(result.phases.size(), 3u);
  const PhasePeak& load = result.phases[0];
  const PhasePeak& forward = result.phases[1];
  const PhasePeak& backward = result.phases[2];
  EXPECT_EQ(load.start_bytes, 0u);
  EXPECT_EQ(load.peak_bytes, 10 * kMiB);
  EXPECT_EQ(load.peak_event, 1u);
  EXPECT_EQ(load.end_bytes, 10 * kMiB);
  EXPECT_EQ(forward.start_bytes, 10 * kMiB);
  EXPECT_EQ(forward.peak_bytes, 40 * kMiB);
  EXPECT_EQ(forward.peak_event, 4u);
  EXPECT_EQ(forward.end_bytes, 20 * kMiB);
  EXPECT_EQ(forward.allocated_peak_bytes, 40 * kMiB);
  EXPECT_EQ(backward.start_bytes, 20 * kMiB);
  EXPECT_EQ(backward.peak_bytes, 20 * kMiB);
  EXPECT_EQ(backward.peak_event, 7u);  // never exceeded: where the phase starts
  EXPECT_EQ(backward.peak_with_workspace_bytes, 28 * kMiB);
  EXPECT_EQ(backward.allocated_peak_bytes, 28 * kMiB);
  EXPECT_EQ(backward.reserved_peak_bytes, 40 * kMiB);  // the 8 MiB come from the 20 MiB that forward freed
}

TEST(Replay, TotalsAreOverAllPhases) {
  const Replay result = replay(three_phases(), {});
  EXPECT_EQ(result.peak_tensor_bytes, 40 * kMiB);
  EXPECT_EQ(result.peak_event, 4u);
  EXPECT_EQ(result.peak_workspace_bytes, 8 * kMiB);
  EXPECT_EQ(result.peak_allocated_bytes, 40 * kMiB);
  EXPECT_EQ(result.allocated_peak_event, 4u);
  EXPECT_EQ(result.peak_reserved_bytes, 40 * kMiB);
  EXPECT_EQ(result.allocator.allocated, 20 * kMiB);  // what nothing freed stays alive
  EXPECT_FALSE(result.out_of_memory);
  EXPECT_EQ(result.oom_storage, kNoStorage);
}

TEST(Replay, SamplesAndAddressesWhenAskedFor) {
  const Replay result = replay(three_phases(), {{}, true, true});
  const std::vector<std::uint32_t> events = {1, 3, 4, 5, 8, 9};
  const std::vector<Bytes> tensor_mib = {10, 30, 40, 20, 20, 20};
  const std::vector<Bytes> allocated_mib = {10, 30, 40, 20, 28, 20};
  ASSERT_EQ(result.samples.size(), events.size());
  for (std::size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(result.samples[i].event, events[i]);
    EXPECT_EQ(result.samples[i].tensor_bytes, tensor_mib[i] * kMiB) << "sample " << i;
    EXPECT_EQ(result.samples[i].allocated, allocated_mib[i] * kMiB) << "sample " << i;
  }
  const std::uint64_t base = std::uint64_t{1} << 40;
  EXPECT_EQ(result.addresses, (std::vector<std::uint64_t>{base, base + 10 * kMiB, base + 30 * kMiB, base + 10 * kMiB}));

  const Replay bare = replay(three_phases(), {{}, false, false});
  EXPECT_TRUE(bare.samples.empty());
  EXPECT_TRUE(bare.addresses.empty());
  EXPECT_EQ(bare.peak_allocated_bytes, result.peak_allocated_bytes);
}

TEST(Replay, PeakIsWhereItWasFirstReached) {
  TraceBuilder builder;
  builder.mark("only");
  for (int i = 0; i < 3; ++i)
    builder.free(builder.alloc(kMiB));
  EXPECT_EQ(replay(builder.trace, {}).peak_event, 1u);
  EXPECT_EQ(replay(builder.trace, {}).phases[0].peak_event, 1u);
}

TEST(Replay, EmptyTraceIsAllZero) {
  const Replay result = replay(Trace{}, {});
  EXPECT_TRUE(result.phases.empty());
  EXPECT_EQ(result.peak_reserved_bytes, 0u);
}

TEST(Replay, OutOfMemoryStopsThere) {
  ReplayOptions options;
  options.allocator.limit = 36 * kMiB;
  const Replay result = replay(three_phases(), options);
  EXPECT_TRUE(result.out_of_memory);
  EXPECT_EQ(result.oom_event, 4u);
  EXPECT_EQ(result.oom_storage, 2u);
  EXPECT_EQ(result.oom_requested_bytes, 10 * kMiB);
  EXPECT_EQ(result.oom_segment_bytes, 10 * kMiB);
  ASSERT_EQ(result.phases.size(), 2u);
  EXPECT_EQ(result.phases[1].end_bytes, 30 * kMiB);
  EXPECT_EQ(result.peak_tensor_bytes, 30 * kMiB);
  EXPECT_EQ(result.samples.size(), 2u);
  EXPECT_EQ(result.allocator.retries, 1u);
}

TEST(Replay, CachedSegmentsAreGivenBackBeforeGivingUp) {
  TraceBuilder builder;
  builder.free(builder.alloc(30 * kMiB));
  builder.alloc(40 * kMiB);
  ReplayOptions options;
  options.allocator.limit = 50 * kMiB;
  const Replay result = replay(builder.trace, options);
  EXPECT_FALSE(result.out_of_memory);
  EXPECT_EQ(result.allocator.retries, 1u);
  EXPECT_EQ(result.peak_reserved_bytes, 40 * kMiB);
}

class Diary : public Executor {
 public:
  void born(StorageId storage, std::uint64_t address) override {
    lines.push_back("born " + std::to_string(storage) + " at " + std::to_string((address >> 20) - (1u << 20)));
  }
  void died(StorageId storage) override { lines.push_back("died " + std::to_string(storage)); }
  void run(std::uint32_t index) override { lines.push_back("run " + std::to_string(index)); }
  void mark(std::uint32_t phase) override { lines.push_back("mark " + std::to_string(phase)); }
  std::vector<std::string> lines;
};

TEST(Replay, ExecutorSeesTheEventsInOrder) {
  TraceBuilder builder;
  builder.mark("only");
  const StorageId a = builder.alloc(10 * kMiB);
  const StorageId b = builder.alloc(12 * kMiB);
  builder.run();
  builder.label(b, Category::gradients);
  builder.free(a);
  Diary diary;
  replay(builder.trace, {}, &diary);
  EXPECT_EQ(diary.lines, (std::vector<std::string>{"mark 0", "born 0 at 0", "born 1 at 10", "run 0", "died 0"}));
}

class RandomReplay : public testing::TestWithParam<unsigned> {};

TEST_P(RandomReplay, AgreesWithACensusAtEveryEvent) {
  const Trace trace = random_trace(GetParam());
  for (const bool expandable : {false, true}) {
    const Replay result = replay(trace, {{expandable, kOverflow}, false, true});
    Census census(trace);
    std::size_t applied = 0;
    Bytes peak = 0;
    for (const Sample& sample : result.samples) {
      while (applied <= sample.event)
        census.apply(trace.events[applied++]);
      Bytes tensors = 0;
      for (std::size_t c = 0; c < static_cast<std::size_t>(Category::workspace); ++c)
        tensors += census.bytes()[c];
      ASSERT_EQ(sample.tensor_bytes, tensors) << "event " << sample.event;
      ASSERT_LE(tensors + census.bytes()[static_cast<std::size_t>(Category::workspace)], sample.allocated);
      ASSERT_LE(sample.allocated, sample.reserved);
      peak = std::max(peak, tensors);
    }
    EXPECT_EQ(result.peak_tensor_bytes, peak);
    Bytes phase_peak = 0;
    for (std::size_t i = 0; i < result.phases.size(); ++i) {
      const PhasePeak& phase = result.phases[i];
      phase_peak = std::max(phase_peak, phase.peak_bytes);
      EXPECT_EQ(phase.start_bytes, i == 0 ? 0 : result.phases[i - 1].end_bytes);
      EXPECT_LE(phase.peak_bytes, phase.peak_with_workspace_bytes);
      EXPECT_LE(phase.peak_with_workspace_bytes, phase.allocated_peak_bytes);
      EXPECT_LE(phase.allocated_peak_bytes, phase.reserved_peak_bytes);
    }
    EXPECT_EQ(phase_peak, peak);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomReplay, testing::Range(1u, 6u));

}  // namespace
}  // namespace ledger
