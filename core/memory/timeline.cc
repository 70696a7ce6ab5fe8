#include "core/memory/timeline.h"

#include <algorithm>

#include "core/memory/census.h"

namespace ledger {
namespace {

using Events = std::vector<std::uint32_t>;

void sort_unique(Events& events) {
  std::sort(events.begin(), events.end());
  events.erase(std::unique(events.begin(), events.end()), events.end());
}

// One past the last event that was played: all of them, but where memory ran out or the run was stopped.
std::uint32_t played_events(const Trace& trace, const Replay& replay) {
  if (replay.out_of_memory) return replay.oom_event;
  const auto count = static_cast<std::uint32_t>(trace.events.size());
  const std::uint32_t after = replay.samples.back().event + 1;
  for (std::uint32_t i = after; i < count; ++i) {
    if (trace.events[i].type == EventType::alloc || trace.events[i].type == EventType::free) return after;
  }
  return count;
}

// Events that are points whatever the budget; with the first and last sample, so that the curve spans the replay.
Events kept_always(const Trace& trace, const Replay& replay, std::uint32_t end) {
  Events kept = {replay.samples.front().event, replay.samples.back().event, replay.peak_event,
                 replay.allocated_peak_event};
  for (std::uint32_t i = 0; i < end; ++i) {
    if (trace.events[i].type == EventType::mark) kept.push_back(i);
  }
  for (const PhasePeak& phase : replay.phases)
    kept.push_back(phase.peak_event);
  sort_unique(kept);
  return kept;
}

// Adds the lowest and the highest sample of each of `ranges` equal ranges of [0, end).
void keep_extremes(const std::vector<Sample>& samples, std::uint32_t end, std::size_t ranges, Events& kept) {
  std::size_t i = 0;
  for (std::size_t range = 1; range <= ranges && i < samples.size(); ++range) {
    const std::uint64_t range_end = std::uint64_t{end} * range / ranges;
    if (samples[i].event >= range_end) continue;
    std::size_t low = i;
    std::size_t high = i;
    for (; i < samples.size() && samples[i].event < range_end; ++i) {
      if (samples[i].tensor_bytes < samples[low].tensor_bytes) low = i;
      if (samples[i].tensor_bytes > samples[high].tensor_bytes) high = i;
    }
    kept.push_back(samples[low].event);
    kept.push_back(samples[high].event);
  }
}

// The points at `kept` (rising): values of the last sample not after each, categories by walking the events once.
std::vector<TimelinePoint> points_at(const Trace& trace, const Replay& replay, const Events& kept) {
  std::vector<TimelinePoint> points;
  points.reserve(kept.size());
  Census census(trace);
  TimelinePoint point;
  std::size_t sample = 0;
  std::uint32_t applied = 0;
  for (const std::uint32_t event : kept) {
    for (; applied <= event; ++applied)
      census.apply(trace.events[applied]);
    for (; sample < replay.samples.size() && replay.samples[sample].event <= event; ++sample) {
      point.tensor_bytes = replay.samples[sample].tensor_bytes;
      point.allocated = replay.samples[sample].allocated;
      point.reserved = replay.samples[sample].reserved;
    }
    point.event = event;
    point.categories = census.bytes();
    points.push_back(point);
  }
  return points;
}

}  // namespace

std::vector<TimelinePoint> timeline(const Trace& trace, const Replay& replay, std::size_t points) {
  if (replay.samples.empty()) return {};
  const std::uint32_t end = played_events(trace, replay);
  Events kept = kept_always(trace, replay, end);
  if (replay.samples.size() <= points) {
    Events all = kept;
    for (const Sample& sample : replay.samples)
      all.push_back(sample.event);
    sort_unique(all);
    if (all.size() <= points) return points_at(trace, replay, all);
  }
  if (kept.size() < points) keep_extremes(replay.samples, end, (points - kept.size()) / 2, kept);
  sort_unique(kept);
  return points_at(trace, replay, kept);
}

}  // namespace ledger
