#include "probe/ranks/reduce.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "probe/host/strips.h"

namespace ledger {
namespace {

constexpr std::size_t kStrip = 512;
using Strip = std::array<double, kStrip>;

void add_part(Strip& sum, const Strip& part, std::size_t count, ReduceOp op, bool first) {
  for (std::size_t i = 0; i < count; ++i) {
    const double value = op == ReduceOp::norm ? part[i] * part[i] : part[i];
    if (first) {
      sum[i] = value;
    } else {
      sum[i] = op == ReduceOp::largest ? std::max(sum[i], value) : sum[i] + value;
    }
  }
}

void finish(Strip& sum, std::size_t count, ReduceOp op, std::size_t ranks) {
  for (std::size_t i = 0; i < count; ++i) {
    if (op == ReduceOp::mean) sum[i] /= static_cast<double>(ranks);
    if (op == ReduceOp::norm) sum[i] = std::sqrt(sum[i]);
  }
}

}  // namespace

void reduce_parts(std::span<const std::byte* const> parts, const RankBuffer& result, ReduceOp op) {
  const Bytes element = element_bytes(result.dtype);
  const auto step = static_cast<std::ptrdiff_t>(element);
  Strip sum{}, part{};
  for (std::uint64_t at = 0; at < result.count; at += kStrip) {
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(kStrip, result.count - at));
    for (std::size_t r = 0; r < parts.size(); ++r) {
      host::load_strip(part.data(), parts[r] + at * element, step, count, result.dtype);
      add_part(sum, part, count, op, r == 0);
    }
    finish(sum, count, op, parts.size());
    host::store_strip(result.data + at * element, step, sum.data(), count, result.dtype);
  }
}

}  // namespace ledger
