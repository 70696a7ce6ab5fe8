// routing.cc - choosing experts for tokens, sorting tokens by expert, and products group by group.
#include "probe/device/grouped.h"
#include "probe/device/kernels.h"
#include "probe/device/tile.h"

namespace ledger::LEDGER_DEVICE {
namespace {

struct Columns {
  std::byte* data;
  std::int64_t row_step, column_step;
  DType dtype;

  explicit Columns(const Operand& view)
      : data(view.data), row_step(view.byte_stride(0)), column_step(view.byte_stride(1)), dtype(view.dtype) {}
  LEDGER_DEVICE_ONLY std::byte* at(std::uint64_t row, std::uint64_t column) const {
    return data + static_cast<std::int64_t>(row) * row_step + static_cast<std::int64_t>(column) * column_step;
  }
};

// A thread a row: each pass finds the largest of those that come after the last one found; equals in order of place.
struct TopK {
  Columns in, values, places;
  std::uint64_t width, wanted;

  LEDGER_DEVICE_ONLY void operator()(std::uint64_t row) const {
    double last = 0;
    std::uint64_t last_place = width;
    for (std::uint64_t j = 0; j < wanted; ++j) {
      std::uint64_t best = width;
      double largest = 0;
      for (std::uint64_t i = 0; i < width; ++i) {
        const double x = load_float<double>(in.at(row, i), in.dtype);
        const bool comes_after = j == 0 || x < last || (x == last && i > last_place);
        if (!comes_after || (best != width && !(x > largest))) continue;
        best = i;
        largest = x;
      }
      store_float(values.at(row, j), largest, values.dtype);
      *reinterpret_cast<std::int64_t*>(places.at(row, j)) = static_cast<std::int64_t>(best);
      last = largest;
      last_place = best;
    }
  }
};

struct TopKBackward {
  Columns gradient, places, out;
  std::uint64_t wanted, width;
  std::int32_t* fault;

  LEDGER_DEVICE_ONLY void operator()(std::uint64_t row) const {
    for (std::uint64_t j = 0; j < wanted; ++j) {
      const std::int64_t place = *reinterpret_cast<const std::int64_t*>(places.at(row, j));
      if (!inside(place, width, fault, device::kBadIndex)) continue;
      const double value = load_float<double>(gradient.at(row, j), gradient.dtype);
      store_float(out.at(row, static_cast<std::uint64_t>(place)), value, out.dtype);
    }
  }
};

struct Gather {
  Columns in, places, out;
  std::uint64_t wanted, width;
  std::int32_t* fault;

  LEDGER_DEVICE_ONLY void operator()(std::uint64_t row) const {
    for (std::uint64_t j = 0; j < wanted; ++j) {
      const std::int64_t place = *reinterpret_cast<const std::int64_t*>(places.at(row, j));
      if (!inside(place, width, fault, device::kBadIndex)) continue;
      const double value = load<double>(in.at(row, static_cast<std::uint64_t>(place)), in.dtype);
      store(out.at(row, j), value, out.dtype);
    }
  }
};

struct ScatterValue {
  Columns places, out;
  std::uint64_t wanted, width;
  double value;
  std::int32_t* fault;

  LEDGER_DEVICE_ONLY void operator()(std::uint64_t row) const {
    for (std::uint64_t j = 0; j < wanted; ++j) {
      const std::int64_t place = *reinterpret_cast<const std::int64_t*>(places.at(row, j));
      if (!inside(place, width, fault, device::kBadIndex)) continue;
      store_float(out.at(row, static_cast<std::uint64_t>(place)), value, out.dtype);
    }
  }
};

// Every element finds its own place by counting what comes before it.
struct Sort {
  Integers keys;
  std::byte *sorted, *order;
  std::int64_t sorted_step, order_step;

  LEDGER_DEVICE_ONLY void operator()(Team& team, std::uint64_t i) const {
    const std::int64_t mine = keys[i];
    const std::uint64_t place = team.sum<std::uint64_t>(keys.count, [&](std::uint64_t j) {
      const std::int64_t other = keys[j];
      return std::uint64_t{other < mine || (other == mine && j < i)};
    });
    team.each([&](unsigned lane) {
      if (lane != 0) return;
      const auto at = static_cast<std::int64_t>(place);
      *reinterpret_cast<std::int64_t*>(sorted + at * sorted_step) = mine;
      *reinterpret_cast<std::int64_t*>(order + at * order_step) = static_cast<std::int64_t>(i);
    });
  }
};

struct Count {
  Operand in, out;
  std::int64_t in_step, out_step;

  LEDGER_DEVICE_ONLY void operator()(Team& team, std::uint64_t bin) const {
    const double counted = team.sum<double>(in.sizes[0], [&](std::uint64_t i) {
      const double x = load<double>(in.data + static_cast<std::int64_t>(i) * in_step, in.dtype);
      return x >= 0 && static_cast<std::uint64_t>(x) == bin ? 1.0 : 0.0;
    });
    team.each([&](unsigned lane) {
      if (lane == 0) store(out.data + static_cast<std::int64_t>(bin) * out_step, counted, out.dtype);
    });
  }
};

struct GroupedOperands {
  Operand a, b, out;
  std::uint64_t element, out_element;
  Groups groups;
  std::uint64_t across;  // tiles of columns
};

// out[R,N] = a[R,K] b[e]: row tiles that do not cross from one group into the next.
template <class C>
struct GroupedRows {
  GroupedOperands x;

  LEDGER_DEVICE_ONLY void operator()(Team& team, std::uint64_t index) const {
    const Groups::Tile tile = x.groups.tile(index / x.across, kTile);
    if (tile.group == x.groups.count) return;  // as many as there could be were launched
    auto& memory = *reinterpret_cast<TileMemory<C>*>(team.shared);
    const std::uint64_t group = tile.group, first = tile.first, end = x.groups.end(group);
    const std::uint64_t column0 = index % x.across * kTile;
    const Grid<C> left(x.a, x.element), right(x.b, x.element, group), result(x.out, x.out_element);
    PerLane<Block<C>> blocks;
    multiply(
        team, memory, blocks, left.columns, true, false,
        [&](unsigned row, std::uint64_t k) { return first + row < end ? left.get(first + row, k) : C{0}; },
        [&](unsigned column, std::uint64_t k) { return right.get(k, column0 + column); });
    team.each([&](unsigned lane) {
      visit(blocks[lane], lane, [&](unsigned row, unsigned column, C value) {
        if (first + row < end) result.set(first + row, column0 + column, value);
      });
    });
  }
};

// out[e] = a[M,R] b[R,N] over the group's part of R; zeros where it has none.
template <class C>
struct GroupedDepth {
  GroupedOperands x;
  std::uint64_t down;

  LEDGER_DEVICE_ONLY void operator()(Team& team, std::uint64_t index) const {
    auto& memory = *reinterpret_cast<TileMemory<C>*>(team.shared);
    const std::uint64_t group = index / (down * x.across), tile = index % (down * x.across);
    const std::uint64_t row0 = tile / x.across * kTile, column0 = tile % x.across * kTile;
    const std::uint64_t first = x.groups.begin(group), depth = x.groups.end(group) - first;
    const Grid<C> left(x.a, x.element), right(x.b, x.element), result(x.out, x.out_element, group);
    PerLane<Block<C>> blocks;
    multiply(
        team, memory, blocks, depth, false, false,
        [&](unsigned row, std::uint64_t k) { return left.get(row0 + row, first + k); },
        [&](unsigned column, std::uint64_t k) { return right.get(first + k, column0 + column); });
    team.each([&](unsigned lane) {
      visit(blocks[lane], lane,
            [&](unsigned row, unsigned column, C value) { result.set(row0 + row, column0 + column, value); });
    });
  }
};

template <class C>
void grouped_product(Call& call) {
  const Operand &a = call.in[0], &b = call.in[1], &ends = call.in[2], &out = call.out[0];
  const std::uint64_t across = divide_up(out.sizes[out.rank - 1u], kTile);
  const GroupedOperands x{a, b, out, element_bytes(a.dtype), element_bytes(out.dtype), Groups(ends), across};
  if (b.rank == 3) {
    return for_teams(call, x.groups.most_tiles(a.sizes[0], kTile) * across, GroupedRows<C>{x}, sizeof(TileMemory<C>));
  }
  const std::uint64_t down = divide_up(out.sizes[1], kTile);
  for_teams(call, x.groups.count * down * across, GroupedDepth<C>{x, down}, sizeof(TileMemory<C>));
}

}  // namespace

void topk(Call& call) {
  const Operand &in = call.in[0], &values = call.out[0];
  for_elements(call, in.sizes[0],
               TopK{Columns(in), Columns(values), Columns(call.out[1]), in.sizes[1], values.sizes[1]});
}

void topk_backward(Call& call) {
  fill_zeros(call);
  const Operand &gradient = call.in[0], &out = call.out[0];
  for_elements(call, gradient.sizes[0],
               TopKBackward{Columns(gradient), Columns(call.in[1]), Columns(out), gradient.sizes[1], out.sizes[1],
                            call.services.fault});
}

void gather(Call& call) {
  const Operand &in = call.in[0], &places = call.in[1];
  for_elements(
      call, places.sizes[0],
      Gather{Columns(in), Columns(places), Columns(call.out[0]), places.sizes[1], in.sizes[1], call.services.fault});
}

void scatter_source(Call& call) {
  const Operand &source = call.in[0], &places = call.in[1], &out = call.out[0];
  for_elements(
      call, places.sizes[0],
      TopKBackward{Columns(source), Columns(places), Columns(out), places.sizes[1], out.sizes[1], call.services.fault});
}

void scatter_value(Call& call) {
  const Operand &places = call.in[0], &out = call.out[0];
  for_elements(
      call, places.sizes[0],
      ScatterValue{Columns(places), Columns(out), places.sizes[1], out.sizes[1], call.attr.x, call.services.fault});
}

void sort(Call& call) {
  const Operand &sorted = call.out[0], &order = call.out[1];
  const Integers keys(call.in[0]);
  for_teams(call, keys.count, Sort{keys, sorted.data, order.data, sorted.byte_stride(0), order.byte_stride(0)});
}

void histc(Call& call) {
  const Operand &in = call.in[0], &out = call.out[0];
  for_teams(call, out.sizes[0], Count{in, out, in.byte_stride(0), out.byte_stride(0)});
}

void grouped_mm(Call& call) {
  if (grouped_on_tensor_cores(call)) return;
  if (in_fp32(call, call.in[0].dtype)) grouped_product<float>(call);
}

}  // namespace ledger::LEDGER_DEVICE
