// strided_loop.h - one walk over several strided operands of one shape, innermost rows handed out whole.
//
// Dimensions that all operands lay out as one are merged, so contiguous tensors become a single row: kernels need no
// separate fast path.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "probe/host/host_view.h"
#include "probe/host/strips.h"

namespace ledger::host {

// NumPy's rule: dimensions aligned at the end, missing or of size 1 where repeated.
inline bool broadcasts_to(const HostView& view, const HostView& shape) {
  if (view.rank > shape.rank) return false;
  for (std::size_t i = 0; i < view.rank; ++i) {
    const std::uint64_t size = view.sizes[view.rank - 1u - i];
    if (size != 1 && size != shape.sizes[shape.rank - 1u - i]) return false;
  }
  return true;
}

// Bytes from one element to the next along a dimension counted from the last; 0 where the operand is repeated.
inline std::ptrdiff_t broadcast_step(const HostView& operand, std::size_t from_last) {
  if (from_last >= operand.rank) return 0;
  const std::size_t dim = operand.rank - 1u - from_last;
  return operand.sizes[dim] == 1 ? 0 : operand.byte_stride(dim);
}

template <std::size_t N>
struct StridedLoop {
  std::array<std::byte*, N> data{};
  std::array<std::uint64_t, kMaxRank> sizes{1};  // innermost first
  std::array<std::array<std::ptrdiff_t, N>, kMaxRank> steps{};
  std::size_t rank = 1;

  // `operands` broadcast to the shape of `shape`.
  StridedLoop(const HostView& shape, const std::array<HostView, N>& operands) {
    for (std::size_t n = 0; n < N; ++n)
      data[n] = operands[n].data;
    bool first = true;
    for (std::size_t i = 0; i < shape.rank; ++i) {
      const std::uint64_t size = shape.sizes[shape.rank - 1u - i];
      if (size == 1) continue;
      std::array<std::ptrdiff_t, N> step{};
      for (std::size_t n = 0; n < N; ++n)
        step[n] = broadcast_step(operands[n], i);
      if (first || !extends_outermost(step)) {
        rank = first ? 1 : rank + 1;
        sizes[rank - 1] = size;
        steps[rank - 1] = step;
        first = false;
      } else {
        sizes[rank - 1] *= size;
      }
    }
  }

  template <class Row>
  void for_each_row(Row&& row) const {
    if (std::any_of(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(rank), [](auto s) { return s == 0; }))
      return;
    std::array<std::byte*, N> at = data;
    std::array<std::uint64_t, kMaxRank> index{};
    while (true) {
      row(at, static_cast<std::size_t>(sizes[0]));
      std::size_t dim = 1;
      for (; dim < rank; ++dim) {
        advance(at, dim, 1);
        if (++index[dim] < sizes[dim]) break;
        advance(at, dim, -static_cast<std::ptrdiff_t>(sizes[dim]));
        index[dim] = 0;
      }
      if (dim >= rank) return;
    }
  }

 private:
  bool extends_outermost(const std::array<std::ptrdiff_t, N>& step) const {
    for (std::size_t n = 0; n < N; ++n) {
      if (step[n] != steps[rank - 1][n] * static_cast<std::ptrdiff_t>(sizes[rank - 1])) return false;
    }
    return true;
  }
  void advance(std::array<std::byte*, N>& at, std::size_t dim, std::ptrdiff_t times) const {
    for (std::size_t n = 0; n < N; ++n)
      at[n] += steps[dim][n] * times;
  }
};

// row(pointers to the first element of each operand's row) for every row of the last dimension; all are of one shape.
template <std::size_t N, class Row>
void for_each_vector(const std::array<HostView, N>& operands, Row&& row) {
  std::array<HostView, N> leading = operands;
  for (HostView& view : leading)
    view.rank = static_cast<std::uint8_t>(view.rank - 1);
  const StridedLoop<N> loop(leading[0], leading);
  loop.for_each_row([&](auto at, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      row(at);
      for (std::size_t n = 0; n < N; ++n)
        at[n] += loop.steps[0][n];
    }
  });
}

inline std::ptrdiff_t last_step(const HostView& view) {
  return view.byte_stride(view.rank - 1u);
}

inline constexpr std::size_t kStrip = 512;  // elements; a few buffers of it stay in the L1 cache

// body(first, count) over [0, total) in pieces of at most kStrip.
template <class Body>
void in_strips(std::size_t total, Body&& body) {
  for (std::size_t first = 0; first < total; first += kStrip)
    body(first, std::min(kStrip, total - first));
}

// out[i] = value(i) with i counting elements in row-major order.
template <class C, class Value>
void generate(const HostView& out, Value&& value) {
  std::array<C, kStrip> buffer;
  std::uint64_t index = 0;
  const StridedLoop<1> loop(out, {out});
  loop.for_each_row([&](const auto& at, std::size_t row) {
    in_strips(row, [&](std::size_t first, std::size_t count) {
      for (std::size_t i = 0; i < count; ++i)
        buffer[i] = value(index++);
      const std::ptrdiff_t step = loop.steps[0][0];
      store_strip(at[0] + static_cast<std::ptrdiff_t>(first) * step, step, buffer.data(), count, out.dtype);
    });
  });
}

}  // namespace ledger::host
