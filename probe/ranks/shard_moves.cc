#include "probe/ranks/shard_moves.h"

#include <algorithm>

namespace ledger {
namespace {

using host::HostView;

ShardMoves refused(const char* error) {
  ShardMoves moves;
  moves.error = error;
  return moves;
}

// `shape`'s sizes, dense, on the elements of `view` from `from` on.
HostView dense_window(const HostView& view, std::uint64_t from, const HostView& shape) {
  return host::dense_view(shape, view.data + from * element_bytes(view.dtype), view.dtype);
}

bool cut_flat(const Attr& attr, const HostView& parameter) {
  return attr.i[1] != 0 || parameter.rank == 0;
}

std::uint64_t shard_elements(const Attr& attr, const HostView& parameter, std::uint64_t world) {
  const std::uint64_t elements = parameter.numel();
  if (cut_flat(attr, parameter)) return divide_up(elements, world);
  const std::uint64_t rows = parameter.sizes[0];
  return rows == 0 ? 0 : divide_up(rows, world) * (elements / rows);
}

// What of `elements` lies in shard `rank` of `shard` elements.
std::uint64_t held(std::uint64_t elements, std::uint64_t shard, std::uint64_t rank) {
  return std::min(shard, elements - std::min(elements, shard * rank));
}

// Rank r's shard of a parameter's gradient, `count` elements: a row of it, or some of its first dimension.
HostView shard_of(const Attr& attr, const HostView& gradient, std::uint64_t shard, std::uint64_t r,
                  std::uint64_t count) {
  if (cut_flat(attr, gradient)) return flat_window(gradient, shard * r, count);
  const std::uint64_t row = gradient.numel() / gradient.sizes[0];
  HostView part = gradient;
  part.sizes[0] = count / row;
  part.data += static_cast<std::ptrdiff_t>(shard / row * r) * gradient.byte_stride(0);
  return part;
}

}  // namespace

bool is_dense(const HostView& view) {
  std::uint64_t stride = 1;
  for (std::size_t i = view.rank; i-- > 0;) {
    if (view.sizes[i] != 1 && view.strides[i] != static_cast<std::int64_t>(stride)) return false;
    stride *= view.sizes[i];
  }
  return true;
}

HostView flat_window(const HostView& view, std::uint64_t from, std::uint64_t count) {
  HostView row;
  row.data = view.data + from * element_bytes(view.dtype);
  row.dtype = view.dtype;
  row.rank = 1;
  row.sizes[0] = count;
  row.strides[0] = 1;
  return row;
}

ShardMoves gather_in_moves(Views in, const HostView& out, RankSeat seat) {
  if (!is_dense(out)) return refused(kNotDense);
  ShardMoves moves;
  const std::uint64_t part = out.numel() / seat.world;
  std::uint64_t at = 0;
  for (const HostView& shard : in) {
    moves.copies.push_back({dense_window(out, part * seat.rank + at, shard), shard});
    at += shard.numel();
  }
  return at == part ? moves : refused(kPartsDoNotFit);
}

ShardMoves own_part_moves(const HostView& part, const HostView& whole, RankSeat seat) {
  if (!is_dense(whole)) return refused(kNotDense);
  if (part.numel() * seat.world != whole.numel()) return refused(kPartsDoNotFit);
  ShardMoves moves;
  moves.copies.push_back({dense_window(whole, part.numel() * seat.rank, part), part});
  return moves;
}

ShardMoves gather_out_moves(const HostView& in, Views out, const Attr& attr, RankSeat seat) {
  ShardMoves moves;
  const std::uint64_t part = in.numel() / seat.world;
  auto at = static_cast<std::uint64_t>(attr.i[0]);
  for (const HostView& parameter : out) {
    if (!is_dense(in) || !is_dense(parameter)) return refused(kNotDense);
    const std::uint64_t elements = parameter.numel(), shard = shard_elements(attr, parameter, seat.world);
    for (std::uint64_t r = 0; r < seat.world; ++r) {
      const std::uint64_t count = held(elements, shard, r);
      if (count != 0)
        moves.copies.push_back({flat_window(parameter, shard * r, count), flat_window(in, part * r + at, count)});
    }
    at += shard;
  }
  return at <= part ? moves : refused(kPartsDoNotFit);
}

ShardMoves reduce_in_moves(Views in, const HostView& out, const Attr& attr, RankSeat seat) {
  ShardMoves moves;
  const std::uint64_t part = out.numel() / seat.world;
  std::uint64_t at = 0;
  for (const HostView& gradient : in) {
    if (!is_dense(out) || (cut_flat(attr, gradient) && !is_dense(gradient))) return refused(kNotDense);
    const std::uint64_t elements = gradient.numel(), shard = shard_elements(attr, gradient, seat.world);
    for (std::uint64_t r = 0; r < seat.world; ++r) {
      const std::uint64_t count = held(elements, shard, r);
      if (count != 0) {
        const HostView from = shard_of(attr, gradient, shard, r, count);
        moves.copies.push_back({dense_window(out, part * r + at, from), from});
      }
      if (count != shard) moves.zeros.push_back(flat_window(out, part * r + at + count, shard - count));
    }
    at += shard;
  }
  return at == part ? moves : refused(kPartsDoNotFit);
}

}  // namespace ledger
