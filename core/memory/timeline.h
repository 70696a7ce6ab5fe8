// timeline.h - the replay as a drawable curve: at most `points` samples, every peak kept.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/memory/replay.h"

namespace ledger {

struct TimelinePoint {
  std::uint32_t event = 0;
  Bytes tensor_bytes = 0;
  Bytes allocated = 0;
  Bytes reserved = 0;
  std::array<Bytes, kCategories> categories{};  // sums to tensor_bytes + workspace
};

// Min/max decimation over equal event ranges: each range keeps its lowest and highest sample; phase starts, each
// phase's peak, the overall tensor peak, the overall allocated peak, the first and the last sample are always among the
// points, even where these alone are more than `points`. Empty when the replay recorded no samples.
std::vector<TimelinePoint> timeline(const Trace& trace, const Replay& replay, std::size_t points);

}  // namespace ledger
