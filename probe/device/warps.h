// warps.h - teams of four warps for tensor cores: tiles of 16-bit elements in shared memory, products in registers.
//
// As on_device.h: the algorithms are written once. nvcc compiles them with the PTX of warps_gpu.h, g++ with the loops
// of warps_emulated.h, which keep to the layouts that the PTX ISA documents for mma.m16n8k16 and ldmatrix, perform a
// copy only when it is waited for, and find races in shared memory. A lane l of a warp has the group g = l / 4 and the
// place t = l % 4 in it.
#pragma once

#include "probe/device/memory.h"

namespace ledger::LEDGER_DEVICE {

inline constexpr unsigned kWarps = 4;  // of a team; each has 16 rows of every product
inline constexpr unsigned kThreads = kWarps * kWarp;
inline constexpr unsigned kWarpRows = 16;
inline constexpr unsigned kTeamRows = kWarps * kWarpRows;
inline constexpr unsigned kMostShared = 99 * 1024;  // bytes that a team can have on every card from 8.0 on
inline constexpr int kTensorCores = 80;  // compute capability from which mma takes bf16 and copies run by themselves
static_assert(kThreads <= kLanes, "PerLane has a place for each thread");

// Four registers of two elements each. Of a left operand, 16 x 16: rows g and g + 8 of columns 2t.., then both of
// columns 2t + 8... Of a right one: rows 2t.. and 2t + 8.. of column g, for two blocks of eight columns.
struct Fragment {
  std::uint32_t r[4];
};

// Of 16 x 8 results: columns 2t and 2t + 1 of row g, then of row g + 8.
struct Sums {
  float v[4];
};
LEDGER_DEVICE_ONLY inline unsigned sum_row(unsigned lane, unsigned i) {
  return lane / kWarp * kWarpRows + lane % kWarp / 4 + i / 2 * 8;
}
LEDGER_DEVICE_ONLY inline unsigned sum_column(unsigned lane, unsigned i) {
  return lane % 4 * 2 + i % 2;
}

}  // namespace ledger::LEDGER_DEVICE

#if defined(__CUDACC__)
#include "probe/device/warps_gpu.h"
#else
#include "probe/device/warps_emulated.h"
#endif

namespace ledger::LEDGER_DEVICE {

// Rows of kWidth 16-bit elements in shared memory. Eight elements lie between them, so that the eight rows of a matrix
// that is loaded at once meet different banks.
template <unsigned kWidth>
struct SharedRows {
  static constexpr unsigned kPitch = (kWidth + 8) * 2;  // bytes
  static_assert(kWidth % 16 == 0 && kPitch / 16 % 2 == 1);
  unsigned at;

  static constexpr unsigned bytes(unsigned rows) { return rows * kPitch; }
  LEDGER_DEVICE_ONLY unsigned place(unsigned row, unsigned column) const { return at + row * kPitch + column * 2; }
  // Of the row that `lane` names when four 8 x 8 matrices are loaded from (row, column) on. The second matrix is the
  // one below (kDown) or the one to the right.
  template <bool kDown>
  LEDGER_DEVICE_ONLY unsigned matrix(unsigned lane, unsigned row, unsigned column) const {
    const unsigned second = lane / 8 % 2 * 8, third = lane % kWarp / 16 * 8;
    return place(row + lane % 8 + (kDown ? second : third), column + (kDown ? third : second));
  }
};

// Rows of 16-bit elements side by side in the device's memory.
struct GlobalRows {
  std::byte* data;
  std::int64_t step;  // bytes
  std::uint64_t rows;

  LEDGER_DEVICE_ONLY std::byte* at(std::uint64_t row, unsigned column = 0) const {
    return data + static_cast<std::int64_t>(row) * step + column * 2;
  }
};

// Begins to copy kRows rows from `first` on, zeros past the end.
template <unsigned kRows, unsigned kWidth>
LEDGER_DEVICE_ONLY inline void fetch_rows(Warps& warps, SharedRows<kWidth> to, const GlobalRows& from,
                                          std::uint64_t first) {
  constexpr unsigned kPieces = kWidth / kStrip;  // of 16 bytes
  static_assert(kRows * kPieces % kThreads == 0);
  warps.lanes([&](unsigned lane) {
    LEDGER_UNROLL
    for (unsigned i = 0; i < kRows * kPieces; i += kThreads) {
      const unsigned row = (i + lane) / kPieces, column = (i + lane) % kPieces * kStrip;
      const bool there = first + row < from.rows;
      warps.copy(lane, to.place(row, column), from.at(there ? first + row : 0, column), there);
    }
  });
}

template <std::size_t kBlocks>
LEDGER_DEVICE_ONLY inline void clear(Warps& warps, PerLane<std::array<Sums, kBlocks>>& sums) {
  warps.lanes([&](unsigned lane) {
    LEDGER_UNROLL
    for (unsigned j = 0; j < kBlocks; ++j)
      LEDGER_UNROLL
    for (unsigned i = 0; i < 4; ++i)
      sums[lane][j].v[i] = 0;
  });
}

// sums[64, 8 kBlocks] = rows of a times rows of b, from their first on.
template <class T, std::size_t kBlocks, unsigned kWidth>
LEDGER_DEVICE_ONLY inline void rows_by_rows(Warps& warps, PerLane<std::array<Sums, kBlocks>>& sums,
                                            SharedRows<kWidth> a, SharedRows<kWidth> b) {
  clear(warps, sums);
  LEDGER_UNROLL
  for (unsigned k = 0; k < kWidth; k += 16) {
    PerLane<std::array<Fragment, 1>> left;
    warps.load<false>(left, 0,
                      [&](unsigned lane) { return a.template matrix<true>(lane, lane / kWarp * kWarpRows, k); });
    LEDGER_UNROLL
    for (unsigned j = 0; j < kBlocks; j += 2) {
      PerLane<std::array<Fragment, 1>> right;
      warps.load<false>(right, 0, [&](unsigned lane) { return b.template matrix<false>(lane, j * 8, k); });
      warps.multiply<T>(sums, j, left, 0, right, 0);
      warps.multiply<T>(sums, j + 1, left, 0, right, 1);
    }
  }
}

// Results as the left operand of the next product: 16 columns of them are one fragment.
template <class T, std::size_t kBlocks>
LEDGER_DEVICE_ONLY inline void as_left(Warps& warps, PerLane<std::array<Fragment, kBlocks / 2>>& fragments,
                                       PerLane<std::array<Sums, kBlocks>>& sums) {
  warps.lanes([&](unsigned lane) {
    LEDGER_UNROLL
    for (unsigned j = 0; j < kBlocks; ++j)
      LEDGER_UNROLL
    for (unsigned i = 0; i < 4; i += 2)
      fragments[lane][j / 2].r[j % 2 * 2 + i / 2] = pack<T>(sums[lane][j].v[i], sums[lane][j].v[i + 1]);
  });
}

// sums[64, 8 kBlocks] += left[64, 16 kDeep] times 16 kDeep rows of b, its columns from the first on.
template <class T, std::size_t kBlocks, std::size_t kDeep, unsigned kWidth>
LEDGER_DEVICE_ONLY inline void add_product(Warps& warps, PerLane<std::array<Sums, kBlocks>>& sums,
                                           PerLane<std::array<Fragment, kDeep>>& left, SharedRows<kWidth> b) {
  LEDGER_UNROLL
  for (unsigned k = 0; k < kDeep; ++k) {
    LEDGER_UNROLL
    for (unsigned j = 0; j < kBlocks; j += 2) {
      PerLane<std::array<Fragment, 1>> right;
      warps.load<true>(right, 0, [&](unsigned lane) { return b.template matrix<true>(lane, k * 16, j * 8); });
      warps.multiply<T>(sums, j, left, k, right, 0);
      warps.multiply<T>(sums, j + 1, left, k, right, 1);
    }
  }
}

// Results of all columns, times `factor`, into rows of memory from `first` on.
template <class T, std::size_t kBlocks>
LEDGER_DEVICE_ONLY inline void store_rows(Warps& warps, PerLane<std::array<Sums, kBlocks>>& sums, const GlobalRows& to,
                                          std::uint64_t first, float factor) {
  warps.lanes([&](unsigned lane) {
    LEDGER_UNROLL
    for (unsigned i = 0; i < 4; i += 2) {
      const std::uint64_t row = first + sum_row(lane, i);
      if (row >= to.rows) continue;
      LEDGER_UNROLL
      for (unsigned j = 0; j < kBlocks; ++j)
        *reinterpret_cast<std::uint32_t*>(to.at(row, j * 8 + sum_column(lane, i))) =
            pack<T>(sums[lane][j].v[i] * factor, sums[lane][j].v[i + 1] * factor);
    }
  });
}

}  // namespace ledger::LEDGER_DEVICE
