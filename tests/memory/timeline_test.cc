#include "core/memory/timeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "core/memory/ledger.h"
#include "trace_builder.h"

namespace ledger {
namespace {

const TimelinePoint* point_at(const std::vector<TimelinePoint>& points, std::uint32_t event) {
  const auto found = std::find_if(points.begin(), points.end(), [&](const auto& p) { return p.event == event; });
  return found == points.end() ? nullptr : &*found;
}

TEST(Timeline, ShortReplaysAreKeptWhole) {
  TraceBuilder builder;
  builder.mark("only");                                                          // 0
  const StorageId a = builder.alloc(10 * kMiB, Category::activation_gradients);  // 1
  builder.label(a, Category::gradients);                                         // 2
  builder.alloc(kMiB, Category::workspace);                                      // 3
  builder.free(a);                                                               // 4
  const Replay played = replay(builder.trace, {});
  const std::vector<TimelinePoint> points = timeline(builder.trace, played, 100);
  ASSERT_EQ(points.size(), 4u);
  EXPECT_EQ(points[0].event, 0u);
  EXPECT_EQ(points[0].reserved, 0u);
  EXPECT_EQ(points[1].categories[static_cast<std::size_t>(Category::activation_gradients)], 10 * kMiB);
  EXPECT_EQ(points[2].event, 3u);
  EXPECT_EQ(points[2].tensor_bytes, 10 * kMiB);
  EXPECT_EQ(points[2].allocated, 11 * kMiB);
  EXPECT_EQ(points[2].categories[static_cast<std::size_t>(Category::gradients)], 10 * kMiB);
  EXPECT_EQ(points[2].categories[static_cast<std::size_t>(Category::workspace)], kMiB);
  EXPECT_EQ(points[3].tensor_bytes, 0u);
  EXPECT_EQ(points[3].reserved, 12 * kMiB);
}

TEST(Timeline, EachRangeKeepsItsLowestAndHighest) {
  TraceBuilder builder;
  for (Bytes i = 0; i < 400; ++i)
    builder.free(builder.alloc((1 + i % 100) * kMiB));  // saw teeth, 200 events each
  const Replay played = replay(builder.trace, {});
  const std::vector<TimelinePoint> points = timeline(builder.trace, played, 12);  // 3 always (0, 198, 799), 4 ranges
  EXPECT_LE(points.size(), 12u);
  for (const std::uint32_t tooth : {0u, 200u, 400u, 600u}) {
    ASSERT_NE(point_at(points, tooth + 198), nullptr) << tooth;
    EXPECT_EQ(point_at(points, tooth + 198)->tensor_bytes, 100 * kMiB);
    ASSERT_NE(point_at(points, tooth + 1), nullptr) << tooth;
    EXPECT_EQ(point_at(points, tooth + 1)->tensor_bytes, 0u);
  }
}

TEST(Timeline, StopsWhereMemoryRanOut) {
  TraceBuilder builder;
  builder.mark("load");
  builder.alloc(10 * kMiB);
  builder.alloc(50 * kMiB);  // refused
  builder.mark("forward");
  ReplayOptions options;
  options.allocator.limit = 40 * kMiB;
  const std::vector<TimelinePoint> points = timeline(builder.trace, replay(builder.trace, options), 100);
  ASSERT_EQ(points.size(), 2u);
  EXPECT_EQ(points[1].event, 1u);
  EXPECT_EQ(points[1].tensor_bytes, 10 * kMiB);
}

TEST(Timeline, StopsWhereTheRunWasStopped) {
  TraceBuilder builder;
  builder.mark("load");
  builder.alloc(10 * kMiB);
  builder.mark("forward");
  builder.alloc(50 * kMiB);
  Replay stopped = replay(builder.trace, {});
  stopped.samples.pop_back();
  stopped.phases.pop_back();
  stopped.peak_event = stopped.allocated_peak_event = 1;
  const std::vector<TimelinePoint> points = timeline(builder.trace, stopped, 100);
  ASSERT_EQ(points.size(), 2u);
  EXPECT_EQ(points[1].event, 1u);
  EXPECT_EQ(points[1].tensor_bytes, 10 * kMiB);
}

TEST(Timeline, NothingWithoutSamples) {
  EXPECT_TRUE(timeline(Trace{}, Replay{}, 100).empty());
}

class RandomTimeline : public testing::TestWithParam<std::size_t> {};

TEST_P(RandomTimeline, KeepsPeaksAndSums) {
  const Trace trace = random_trace(11);
  const Replay played = replay(trace, {});
  const std::vector<TimelinePoint> points = timeline(trace, played, GetParam());
  EXPECT_LE(points.size(), std::max<std::size_t>(GetParam(), 2 * played.phases.size() + 4));
  for (std::size_t i = 1; i < points.size(); ++i)
    EXPECT_LT(points[i - 1].event, points[i].event);
  for (const TimelinePoint& point : points) {
    const Ledger ledger = ledger_at(trace, point.event);
    EXPECT_EQ(point.tensor_bytes, ledger.tensor_bytes);
    EXPECT_EQ(point.categories, ledger.categories);
    EXPECT_LE(point.allocated, point.reserved);
  }
  ASSERT_NE(point_at(points, played.peak_event), nullptr);
  EXPECT_EQ(point_at(points, played.peak_event)->tensor_bytes, played.peak_tensor_bytes);
  ASSERT_NE(point_at(points, played.allocated_peak_event), nullptr);
  EXPECT_EQ(point_at(points, played.allocated_peak_event)->allocated, played.peak_allocated_bytes);
  for (const PhasePeak& phase : played.phases) {
    ASSERT_NE(point_at(points, phase.peak_event), nullptr);
    EXPECT_EQ(point_at(points, phase.peak_event)->tensor_bytes, phase.peak_bytes);
  }
  for (std::uint32_t i = 0; i < trace.events.size(); ++i) {
    EXPECT_TRUE(trace.events[i].type != EventType::mark || point_at(points, i) != nullptr) << "mark " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Budgets, RandomTimeline, testing::Values(0, 1, 20, 50, 400, 100000));

}  // namespace
}  // namespace ledger
