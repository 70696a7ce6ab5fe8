// window_grid.h - images as encoders with windows see them: grids of tokens, cut into square windows whose tokens stand
// together, or whole.
//
// Source: transformers 5.12 vision_utils.py, get_vision_window_index.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/trace/trace.h"

namespace ledger {

struct WindowGrid {
  std::uint64_t rows = 1, columns = 1;  // of tokens
  std::uint64_t side = 0;               // of a window; 0: images are not cut
  std::uint64_t unit = 1;               // places of the sequence that a token takes

  // As operators carry it: sizes stay below 2^31 (image_grid.h).
  Attr attr() const {
    const auto pair = [](std::uint64_t high, std::uint64_t low) {
      return static_cast<std::int64_t>((high << 32) | low);
    };
    return {0, {pair(rows, columns), pair(side, unit)}};
  }
  static WindowGrid of(const Attr& attr) {
    const auto high = [](std::int64_t pair) { return static_cast<std::uint64_t>(pair) >> 32; };
    const auto low = [](std::int64_t pair) { return static_cast<std::uint64_t>(pair) & 0xffffffffu; };
    return {high(attr.i[0]), low(attr.i[0]), high(attr.i[1]), low(attr.i[1])};
  }

  std::uint64_t tokens() const { return times(rows, columns); }

  // Places of each piece of one image, in order.
  std::vector<std::uint64_t> pieces() const {
    if (side == 0) return {times(tokens(), unit)};
    std::vector<std::uint64_t> lengths;
    for (std::uint64_t r = 0; r < rows; r += side) {
      for (std::uint64_t c = 0; c < columns; c += side)
        lengths.push_back(times(times(std::min(side, rows - r), std::min(side, columns - c)), unit));
    }
    return lengths;
  }
  // visit(first place, places) for each piece of a sequence of images.
  template <class Visit>
  void for_each_piece(std::uint64_t sequence, Visit visit) const {
    const std::vector<std::uint64_t> lengths = pieces();
    for (std::uint64_t first = 0; first < sequence;) {
      for (const std::uint64_t length : lengths) {
        visit(first, length);
        first += length;
      }
    }
  }
  std::uint64_t piece_count() const {
    return side == 0 ? 1 : times((rows + side - 1) / side, (columns + side - 1) / side);
  }
};

}  // namespace ledger
