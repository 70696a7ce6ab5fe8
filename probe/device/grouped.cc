// grouped.cc - products of the groups of rows that experts have, on tensor cores: one launch for all of them, tiles of
// 128 x 128 results in 16 bits with fp32 sums. What it does not take is left to routing.cc.
#include "probe/device/grouped.h"

#include "probe/device/kernels.h"
#include "probe/device/warps.h"

namespace ledger::LEDGER_DEVICE {
namespace {

constexpr unsigned kGroupTile = 128, kGroupDepth = 32;  // results in each direction; products at a time
constexpr unsigned kWarpTile = kGroupTile / 2;          // two warps down, two across
constexpr unsigned kDown = kWarpTile / kWarpRows, kAside = kWarpTile / 8;  // blocks of a warp
constexpr unsigned kStages = 3;                                            // of copies on their way

// One operand's part of a stage: rows of kDepth where its inner index lies side by side in memory, else rows of
// results.
template <bool kDeep>
struct GroupedSide {
  static constexpr unsigned kRows = kDeep ? kGroupTile : kGroupDepth, kWidth = kDeep ? kGroupDepth : kGroupTile;
  using Shared = SharedRows<kWidth>;
  static constexpr unsigned kBytes = Shared::bytes(kRows);
};

// A matrix whose columns lie side by side, as far as a product reaches in it.
struct GroupedMatrix {
  std::byte* data;
  std::int64_t step;  // bytes from one row to the next
  std::uint64_t end_row, end_column;
};

template <unsigned kRows, unsigned kWidth>
LEDGER_DEVICE_ONLY inline void fetch_part(Warps& warps, SharedRows<kWidth> to, const GroupedMatrix& from,
                                          std::uint64_t row0, std::uint64_t column0) {
  constexpr unsigned kPieces = kWidth / kStrip;
  static_assert(kRows * kPieces % kThreads == 0);
  warps.lanes([&](unsigned lane) {
    LEDGER_UNROLL
    for (unsigned i = 0; i < kRows * kPieces; i += kThreads) {
      const unsigned row = (i + lane) / kPieces, column = (i + lane) % kPieces * kStrip;
      const bool there = row0 + row < from.end_row && column0 + column < from.end_column;
      const std::byte* at = from.data;
      if (there)
        at += static_cast<std::int64_t>(row0 + row) * from.step + static_cast<std::int64_t>(column0 + column) * 2;
      warps.copy(lane, to.place(row, column), at, there);
    }
  });
}

// kByRows: out[R,N] = a[R,K] b[e], a's inner index side by side. Else out[e] = a[M,R] b[R,N] over the group's part of
// R, a's rows side by side.
template <class T, bool kByRows, bool kRightDeep>
struct GroupedProduct {
  using Left = GroupedSide<kByRows>;
  using Right = GroupedSide<kRightDeep>;
  using Results = PerLane<std::array<Sums, kDown * kAside>>;
  static constexpr unsigned kStage = Left::kBytes + Right::kBytes, kBytes = kStages * kStage;

  Operand a, b, out;
  Groups groups;
  std::uint64_t down, across;  // tiles; down: of a group's own result

  struct Part {
    GroupedMatrix left, right, result;
    std::uint64_t row, column, first, steps;  // first: of the inner index
  };

  LEDGER_DEVICE_ONLY void operator()(Warps& warps, std::uint64_t index) const {
    Part part;
    if (!locate(part, index)) return;  // as many as there could be were launched
    Results results;
    clear(warps, results);
    for (unsigned step = 0; step < kStages - 1; ++step)
      fetch(warps, part, step);
    for (std::uint64_t step = 0; step < part.steps; ++step) {
      warps.template arrive<kStages - 2>();
      warps.barrier();
      fetch(warps, part, step + kStages - 1);
      add_stage(warps, results, stage(step));
    }
    store(warps, results, part);
  }

  LEDGER_DEVICE_ONLY bool locate(Part& part, std::uint64_t index) const {
    const std::uint64_t tile = index / across;
    part.column = index % across * kGroupTile;
    if constexpr (kByRows) {
      const Groups::Tile at = groups.tile(tile, kGroupTile);
      if (at.group == groups.count) return false;
      part.row = at.first;
      part.first = 0;
      part.left = {a.data, a.strides[0] * 2, groups.end(at.group), a.sizes[1]};
      part.right = matrix(b.data + static_cast<std::int64_t>(at.group) * b.strides[0] * 2, b.strides[1], b.strides[2],
                          b.sizes[1], b.sizes[2]);
      part.result = {out.data, out.strides[0] * 2, groups.end(at.group), out.sizes[1]};
      part.steps = (a.sizes[1] + kGroupDepth - 1) / kGroupDepth;
    } else {
      const std::uint64_t group = tile / down, end = groups.end(group);
      part.row = tile % down * kGroupTile;
      part.first = groups.begin(group);
      part.left = {a.data, a.strides[1] * 2, end, a.sizes[0]};
      part.right = {b.data, b.strides[0] * 2, end, b.sizes[1]};
      part.result = {out.data + static_cast<std::int64_t>(group) * out.strides[0] * 2, out.strides[1] * 2, out.sizes[1],
                     out.sizes[2]};
      part.steps = (end - part.first + kGroupDepth - 1) / kGroupDepth;
    }
    return true;
  }
  // The right operand as it lies in memory: rows of its inner index, or of its columns.
  LEDGER_DEVICE_ONLY static GroupedMatrix matrix(std::byte* data, std::int64_t inner_step, std::int64_t column_step,
                                                 std::uint64_t inner, std::uint64_t columns) {
    return kRightDeep ? GroupedMatrix{data, column_step * 2, columns, inner}
                      : GroupedMatrix{data, inner_step * 2, inner, columns};
  }
  LEDGER_DEVICE_ONLY static unsigned stage(std::uint64_t step) {
    return static_cast<unsigned>(step % kStages) * kStage;
  }

  LEDGER_DEVICE_ONLY static void fetch(Warps& warps, const Part& part, std::uint64_t step) {
    if (step < part.steps) {
      const std::uint64_t inner = part.first + step * kGroupDepth;
      const typename Left::Shared left{stage(step)};
      const typename Right::Shared right{stage(step) + Left::kBytes};
      fetch_part<Left::kRows>(warps, left, part.left, kByRows ? part.row : inner, kByRows ? inner : part.row);
      fetch_part<Right::kRows>(warps, right, part.right, kRightDeep ? part.column : inner,
                               kRightDeep ? inner : part.column);
    }
    warps.commit();
  }

  LEDGER_DEVICE_ONLY static void add_stage(Warps& warps, Results& results, unsigned at) {
    const typename Left::Shared left{at};
    const typename Right::Shared right{at + Left::kBytes};
    LEDGER_UNROLL
    for (unsigned k = 0; k < kGroupDepth; k += 16) {
      PerLane<std::array<Fragment, kDown>> rows;
      LEDGER_UNROLL
      for (unsigned i = 0; i < kDown; ++i) {
        warps.template load<!kByRows>(rows, i, [&](unsigned lane) {
          const unsigned row = first_row(lane) + i * kWarpRows;
          return kByRows ? left.template matrix<true>(lane, row, k) : left.template matrix<false>(lane, k, row);
        });
      }
      LEDGER_UNROLL
      for (unsigned j = 0; j < kAside; j += 2) {
        PerLane<std::array<Fragment, 1>> columns;
        warps.template load<!kRightDeep>(columns, 0, [&](unsigned lane) {
          const unsigned column = first_column(lane) + j * 8;
          return kRightDeep ? right.template matrix<false>(lane, column, k)
                            : right.template matrix<true>(lane, k, column);
        });
        LEDGER_UNROLL
        for (unsigned i = 0; i < kDown; ++i) {
          warps.template multiply<T>(results, i * kAside + j, rows, i, columns, 0);
          warps.template multiply<T>(results, i * kAside + j + 1, rows, i, columns, 1);
        }
      }
    }
  }

  LEDGER_DEVICE_ONLY static void store(Warps& warps, Results& results, const Part& part) {
    warps.lanes([&](unsigned lane) {
      LEDGER_UNROLL
      for (unsigned block = 0; block < kDown * kAside; ++block) {
        LEDGER_UNROLL
        for (unsigned i = 0; i < 4; i += 2) {
          const std::uint64_t row = part.row + first_row(lane) + block / kAside * kWarpRows + sum_row(lane % kWarp, i);
          const std::uint64_t column = part.column + first_column(lane) + block % kAside * 8 + sum_column(lane, i);
          if (row >= part.result.end_row || column >= part.result.end_column) continue;
          *reinterpret_cast<std::uint32_t*>(part.result.data + static_cast<std::int64_t>(row) * part.result.step +
                                            static_cast<std::int64_t>(column) * 2) =
              pack<T>(results[lane][block].v[i], results[lane][block].v[i + 1]);
        }
      }
    });
  }
  LEDGER_DEVICE_ONLY static unsigned first_row(unsigned lane) { return lane / kWarp % 2 * kWarpTile; }
  LEDGER_DEVICE_ONLY static unsigned first_column(unsigned lane) { return lane / kWarp / 2 * kWarpTile; }
};

// Dense along dimension `inner`, in whole pieces of 16 bytes from one index to the next of every other.
bool in_pieces(const Operand& x, std::size_t inner) {
  if (x.strides[inner] != 1 || x.sizes[inner] % kStrip != 0 || reinterpret_cast<std::uintptr_t>(x.data) % 16 != 0)
    return false;
  for (std::size_t i = 0; i < x.rank; ++i) {
    if (i != inner && x.sizes[i] > 1 && x.strides[i] % kStrip != 0) return false;
  }
  return true;
}

template <class T, bool kByRows, bool kRightDeep>
void run_grouped(Call& call) {
  using Body = GroupedProduct<T, kByRows, kRightDeep>;
  const Operand& out = call.out[0];
  const Groups groups(call.in[2]);
  const std::uint64_t across = divide_up(out.sizes[out.rank - 1u], kGroupTile);
  const std::uint64_t down = kByRows ? 0 : divide_up(out.sizes[1], kGroupTile);
  const std::uint64_t tiles = kByRows ? groups.most_tiles(out.sizes[0], kGroupTile) : groups.count * down;
  for_warps(call, tiles * across, Body{call.in[0], call.in[1], out, groups, down, across});
}

template <class T>
bool by_layout(Call& call) {
  const Operand &a = call.in[0], &b = call.in[1];
  if (b.rank == 2) {
    if (!in_pieces(a, 0) || !in_pieces(b, 1)) return false;
    run_grouped<T, false, false>(call);
    return true;
  }
  if (!in_pieces(a, 1) || (!in_pieces(b, 1) && !in_pieces(b, 2))) return false;
  in_pieces(b, 1) ? run_grouped<T, true, true>(call) : run_grouped<T, true, false>(call);
  return true;
}

}  // namespace

bool grouped_on_tensor_cores(Call& call) {
  const Operand &a = call.in[0], &b = call.in[1], &out = call.out[0];
  if (call.services.queue.capability < kTensorCores || b.dtype != a.dtype || out.dtype != a.dtype) return false;
  if (!in_pieces(out, out.rank - 1u)) return false;
  return a.dtype == DType::bf16 ? by_layout<Bf16>(call) : a.dtype == DType::f16 && by_layout<Fp16>(call);
}

}  // namespace ledger::LEDGER_DEVICE
