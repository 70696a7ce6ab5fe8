// flash_rows.h - what comes before and after the tensor cores in attention's backward pass: row by row, a thread each.
#pragma once

#include "probe/device/flash.h"

namespace ledger::LEDGER_DEVICE {

// D, the sum of dO O over a row.
template <class T>
struct FlashInner {
  Operand gradient, out;
  RowNumbers inner;
  std::uint64_t heads, queries, width;

  LEDGER_DEVICE_ONLY void operator()(std::uint64_t i) const {
    const std::uint64_t query = i % queries, head = i / queries % heads, batch = i / queries / heads;
    const std::byte *of_gradient = head_rows(gradient, batch, head).at(query),
                    *of_out = head_rows(out, batch, head).at(query);
    float sum = 0;
    for (unsigned column = 0; column < width; column += kStrip) {
      const auto left = *reinterpret_cast<const Packed<T>*>(of_gradient + column * 2);
      const auto right = *reinterpret_cast<const Packed<T>*>(of_out + column * 2);
      LEDGER_UNROLL
      for (unsigned e = 0; e < kStrip; ++e)
        sum += widen(left.items[e]) * widen(right.items[e]);
    }
    inner.at(batch, head, query) = sum;
  }
};

struct FlashClear {
  float* sums;
  LEDGER_DEVICE_ONLY void operator()(std::uint64_t i) const { reinterpret_cast<Packed<std::uint16_t>*>(sums)[i] = {}; }
};

// dQ from its fp32 sums, eight elements a thread.
template <class T>
struct FlashNarrow {
  Operand sums, dq;
  std::uint64_t heads, queries, width;
  float scale;

  LEDGER_DEVICE_ONLY void operator()(std::uint64_t i) const {
    const std::uint64_t strips = width / kStrip, row = i / strips, strip = i % strips;
    const std::uint64_t head = row % heads, query = row / heads % queries, batch = row / heads / queries;
    const float* from = reinterpret_cast<const float*>(sums.data) + static_cast<std::int64_t>(batch) * sums.strides[0] +
                        static_cast<std::int64_t>(query) * sums.strides[1] +
                        static_cast<std::int64_t>(head) * sums.strides[2] + static_cast<std::int64_t>(strip * kStrip);
    Packed<T> all;
    LEDGER_UNROLL
    for (unsigned e = 0; e < kStrip; ++e)
      narrow(from[e] * scale, all.items[e]);
    *reinterpret_cast<Packed<T>*>(head_rows(dq, batch, head).at(query, static_cast<unsigned>(strip) * kStrip)) = all;
  }
};

}  // namespace ledger::LEDGER_DEVICE
