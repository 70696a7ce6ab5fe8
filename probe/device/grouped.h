// grouped.h - products of the groups of rows that experts have: where the groups end stands in the device's memory.
#pragma once

#include "probe/device/memory.h"

namespace ledger::LEDGER_DEVICE {

// Where each group of rows ends, int32.
struct Groups {
  const std::byte* ends;
  std::int64_t step;
  std::uint64_t count;

  explicit Groups(const Operand& view) : ends(view.data), step(view.byte_stride(0)), count(view.sizes[0]) {}
  LEDGER_DEVICE_ONLY std::uint64_t end(std::uint64_t group) const {
    const auto at = ends + static_cast<std::int64_t>(group) * step;
    return static_cast<std::uint64_t>(*reinterpret_cast<const std::int32_t*>(at));
  }
  LEDGER_DEVICE_ONLY std::uint64_t begin(std::uint64_t group) const { return group == 0 ? 0 : end(group - 1); }

  // Tiles of `rows` rows that do not cross from one group into the next: in which group the tile is, and its first row.
  struct Tile {
    std::uint64_t group, first;  // group: count() where there are fewer tiles
  };
  LEDGER_DEVICE_ONLY Tile tile(std::uint64_t index, std::uint64_t rows) const {
    for (std::uint64_t group = 0; group < count; ++group) {
      const std::uint64_t tiles = (end(group) - begin(group) + rows - 1) / rows;
      if (index < tiles) return {group, begin(group) + index * rows};
      index -= tiles;
    }
    return {count, 0};
  }
  // As many as there can be: each group may end in a part of a tile.
  std::uint64_t most_tiles(std::uint64_t all_rows, std::uint64_t rows) const {
    return divide_up(all_rows, rows) + count;
  }
};

// True: the product was computed on tensor cores (or has failed).
bool grouped_on_tensor_cores(Call& call);

}  // namespace ledger::LEDGER_DEVICE
