// relative_bucket.h - T5's buckets of distances: transformers models/t5/modeling_t5.py, _relative_position_bucket.
#pragma once

#include <cmath>
#include <cstdint>

#include "probe/math/host_device.h"

namespace ledger::math {

// By place in a table of queries and `keys` keys. Logarithms are taken in fp32, as there.
struct RelativeBucket {
  std::uint64_t keys;
  std::int64_t buckets, max_distance;
  bool both_ways;

  LEDGER_HOST_DEVICE static std::int64_t one_way(std::int64_t distance, std::int64_t buckets,
                                                 std::int64_t max_distance) {
    const std::int64_t exact = buckets / 2;
    if (distance < exact) return distance;
    const auto first = static_cast<float>(exact);
    const float share = std::log(static_cast<float>(distance) / first) /
                        static_cast<float>(std::log(static_cast<double>(max_distance) / static_cast<double>(exact)));
    const std::int64_t far = exact + static_cast<std::int64_t>(share * static_cast<float>(buckets - exact));
    return far < buckets - 1 ? far : buckets - 1;
  }
  LEDGER_HOST_DEVICE double operator()(std::uint64_t i) const {
    const std::int64_t after = static_cast<std::int64_t>(i % keys) - static_cast<std::int64_t>(i / keys);
    const std::int64_t half = buckets / 2;
    if (!both_ways) return static_cast<double>(one_way(after < 0 ? -after : 0, buckets, max_distance));
    return static_cast<double>((after > 0 ? half : 0) + one_way(after < 0 ? -after : after, half, max_distance));
  }
};

}  // namespace ledger::math
