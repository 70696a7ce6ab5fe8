// tile.h - products of 64 x 64 tiles by one team, in the compute type, from anything that can be read by index.
//
// Operands come in slices of kDepth through shared memory; a lane keeps 4 x 4 results in registers, those of rows
// lane / 16 + 16 i and columns lane % 16 + 16 j. Rows are kPitch apart, one more than a multiple of the banks.
#pragma once

#include "probe/device/memory.h"

namespace ledger::LEDGER_DEVICE {

inline constexpr unsigned kTile = 64;
inline constexpr unsigned kDepth = 32;
inline constexpr unsigned kPitch = kTile + 1;
inline constexpr unsigned kSide = 4;                // results of a lane, in each direction
inline constexpr unsigned kAcross = kTile / kSide;  // lanes across a tile
static_assert(kAcross * kAcross == kLanes);

template <class C>
struct Block {
  C v[kSide][kSide];
};

LEDGER_DEVICE_ONLY inline unsigned tile_row(unsigned lane, unsigned i) {
  return lane / kAcross + kAcross * i;
}
LEDGER_DEVICE_ONLY inline unsigned tile_column(unsigned lane, unsigned j) {
  return lane % kAcross + kAcross * j;
}

template <class C>
LEDGER_DEVICE_ONLY inline void clear(Block<C>& block) {
  LEDGER_UNROLL
  for (unsigned i = 0; i < kSide; ++i)
    LEDGER_UNROLL
  for (unsigned j = 0; j < kSide; ++j)
    block.v[i][j] = 0;
}

// Both operands' slices and one whole tile between them.
template <class C>
struct TileMemory {
  C a[kDepth * kPitch], b[kDepth * kPitch], whole[kTile * kPitch];
  C row[3][kTile];
};

// block += a b, a[k][row] and b[k][column] in shared memory.
template <class C>
LEDGER_DEVICE_ONLY inline void add_slice(Block<C>& block, const C* a, const C* b, unsigned depth, unsigned lane) {
  for (unsigned k = 0; k < depth; ++k) {
    C left[kSide], right[kSide];
    LEDGER_UNROLL
    for (unsigned i = 0; i < kSide; ++i) {
      left[i] = a[k * kPitch + tile_row(lane, i)];
      right[i] = b[k * kPitch + tile_column(lane, i)];
    }
    LEDGER_UNROLL
    for (unsigned i = 0; i < kSide; ++i)
      LEDGER_UNROLL
    for (unsigned j = 0; j < kSide; ++j)
      block.v[i][j] += left[i] * right[j];
  }
}

// Element (k, i) of a slice from read(i, k): `along` is the index whose neighbours lie side by side in memory.
template <class C, class Read>
LEDGER_DEVICE_ONLY inline void fill_slice(C* slice, unsigned depth, bool k_is_dense, unsigned lane, Read read) {
  for (unsigned e = lane; e < kDepth * kTile; e += kLanes) {
    const unsigned k = k_is_dense ? e % kDepth : e / kTile, i = k_is_dense ? e / kDepth : e % kTile;
    if (k < depth) slice[k * kPitch + i] = read(i, k);
  }
}

// blocks = sum over k < depth of a(row, k) b(column, k). The readers answer 0 outside of their matrices.
template <class C, class A, class B>
LEDGER_DEVICE_ONLY inline void multiply(Team& team, TileMemory<C>& memory, PerLane<Block<C>>& blocks,
                                        std::uint64_t depth, bool a_is_dense, bool b_is_dense, A a, B b) {
  team.each([&](unsigned lane) { clear(blocks[lane]); });
  for (std::uint64_t first = 0; first < depth; first += kDepth) {
    const auto here = static_cast<unsigned>(depth - first < kDepth ? depth - first : kDepth);
    team.each([&](unsigned lane) {
      fill_slice(memory.a, here, a_is_dense, lane, [&](unsigned row, unsigned k) { return a(row, first + k); });
      fill_slice(memory.b, here, b_is_dense, lane, [&](unsigned column, unsigned k) { return b(column, first + k); });
    });
    team.each([&](unsigned lane) { add_slice(blocks[lane], memory.a, memory.b, here, lane); });
  }
}

// blocks[t] += whole b, for kTiles tiles of columns side by side: whole[k][row] in shared memory, b(k, column) read.
template <unsigned kTiles, class C, class B>
LEDGER_DEVICE_ONLY inline void add_whole(Team& team, TileMemory<C>& memory,
                                         PerLane<std::array<Block<C>, kTiles>>& blocks, std::uint64_t width, B b) {
  LEDGER_UNROLL
  for (unsigned t = 0; t < kTiles; ++t) {
    if (t * kTile >= width) break;
    for (unsigned first = 0; first < kTile; first += kDepth) {
      team.each([&](unsigned lane) {
        fill_slice(memory.b, kDepth, false, lane,
                   [&](unsigned column, unsigned k) { return b(first + k, t * kTile + column); });
      });
      team.each(
          [&](unsigned lane) { add_slice(blocks[lane][t], memory.whole + first * kPitch, memory.b, kDepth, lane); });
    }
  }
}

// f(row, column, value) for a lane's results.
template <class C, class F>
LEDGER_DEVICE_ONLY inline void visit(Block<C>& block, unsigned lane, F f) {
  LEDGER_UNROLL
  for (unsigned i = 0; i < kSide; ++i)
    LEDGER_UNROLL
  for (unsigned j = 0; j < kSide; ++j)
    f(tile_row(lane, i), tile_column(lane, j), block.v[i][j]);
}

// Kernels that no recipe runs in fp64 exist in fp32 only, and refuse the rest.
inline bool in_fp32(Call& call, DType dtype) {
  if (dtype == DType::f64) call.error = "this operator is not computed in fp64 on a GPU";
  return dtype != DType::f64;
}

// Two dimensions of an operand, read in the compute type; 0 outside.
template <class C>
struct Grid {
  std::byte* data;
  std::int64_t row_step, column_step;
  std::uint64_t rows, columns;
  DType dtype;

  Grid() = default;
  LEDGER_DEVICE_ONLY Grid(const Operand& view, std::uint64_t element, std::uint64_t first = 0, std::uint64_t second = 0)
      : data(view.data), dtype(view.dtype) {
    const unsigned last = view.rank - 1u;
    const auto bytes = static_cast<std::int64_t>(element);
    row_step = view.strides[last - 1] * bytes;
    column_step = view.strides[last] * bytes;
    rows = view.sizes[last - 1];
    columns = view.sizes[last];
    if (view.rank > 2) data += static_cast<std::int64_t>(first) * view.strides[0] * bytes;
    if (view.rank > 3) data += static_cast<std::int64_t>(second) * view.strides[1] * bytes;
  }
  LEDGER_DEVICE_ONLY std::byte* at(std::uint64_t row, std::uint64_t column) const {
    return data + static_cast<std::int64_t>(row) * row_step + static_cast<std::int64_t>(column) * column_step;
  }
  LEDGER_DEVICE_ONLY C get(std::uint64_t row, std::uint64_t column) const {
    return row < rows && column < columns ? load_float<C>(at(row, column), dtype) : C{0};
  }
  LEDGER_DEVICE_ONLY void set(std::uint64_t row, std::uint64_t column, C value) const {
    if (row < rows && column < columns) store_float(at(row, column), value, dtype);
  }
};

}  // namespace ledger::LEDGER_DEVICE
