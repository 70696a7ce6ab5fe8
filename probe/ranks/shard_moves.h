// shard_moves.h - how shards lie in the buffers of collectives (ops.h), as copies from view to view: the host and
// devices run the same ones.
#pragma once

#include <span>
#include <vector>

#include "probe/host/host_view.h"

namespace ledger {

// Which of how many ranks.
struct RankSeat {
  std::uint64_t rank = 0, world = 1;
};

struct ShardMove {
  host::HostView to, from;  // of the same shape; to's dtype may be another
};

struct ShardMoves {
  std::vector<ShardMove> copies;
  std::vector<host::HostView> zeros;
  const char* error = nullptr;  // what does not fit; then there is nothing to do
};

using Views = std::span<const host::HostView>;

ShardMoves gather_in_moves(Views in, const host::HostView& out, RankSeat seat);
// This rank's part of `whole` = `part`.
ShardMoves own_part_moves(const host::HostView& part, const host::HostView& whole, RankSeat seat);
ShardMoves gather_out_moves(const host::HostView& in, Views out, const Attr& attr, RankSeat seat);
ShardMoves reduce_in_moves(Views in, const host::HostView& out, const Attr& attr, RankSeat seat);

// Elements [from, from + count) of a dense view, as a row.
host::HostView flat_window(const host::HostView& view, std::uint64_t from, std::uint64_t count);

bool is_dense(const host::HostView& view);

inline constexpr const char* kNotDense = "a buffer of a collective is not dense";
inline constexpr const char* kPartsDoNotFit = "as many parts as ranks do not fill the buffer";

}  // namespace ledger
