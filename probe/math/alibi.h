// alibi.h - the slopes of ALiBi: transformers models/bloom/modeling_bloom.py, build_alibi_tensor.
#pragma once

#include <cmath>
#include <cstdint>

#include "probe/math/host_device.h"

namespace ledger::math {

struct AlibiSlope {
  std::uint64_t whole;  // the largest power of two that is not more than the heads

  explicit AlibiSlope(std::uint64_t heads) : whole(1) {
    while (whole * 2 <= heads)
      whole *= 2;
  }
  LEDGER_HOST_DEVICE static double base(std::uint64_t n) {  // log2 of it
    return -std::exp2(3 - std::log2(static_cast<double>(n)));
  }
  LEDGER_HOST_DEVICE float operator()(std::uint64_t i) const {
    const double exponent = i < whole ? base(whole) * static_cast<double>(i + 1)
                                      : base(2 * whole) * static_cast<double>(2 * (i - whole) + 1);
    return static_cast<float>(std::exp2(exponent));
  }
};

}  // namespace ledger::math
