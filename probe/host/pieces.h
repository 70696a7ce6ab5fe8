// pieces.h - operands of several sequences that stand one after the other in one: images, or windows of them.
#pragma once

#include <array>
#include <span>

#include "core/trace/window_grid.h"
#include "probe/host/host_view.h"

namespace ledger::host {

// visit(in, out) for each piece of the sequence, which is the third dimension of all operands (attention's, at most six
// and three of them).
template <class Visit>
void for_each_piece(std::span<const HostView> in, std::span<const HostView> out, const WindowGrid& grid, Visit visit) {
  grid.for_each_piece(in[0].sizes[2], [&](std::uint64_t first, std::uint64_t count) {
    std::array<HostView, 6> in_parts;
    std::array<HostView, 3> out_parts;
    for (std::size_t i = 0; i < in.size(); ++i)
      in_parts[i] = part_of(in[i], 2, first, count);
    for (std::size_t i = 0; i < out.size(); ++i)
      out_parts[i] = part_of(out[i], 2, first, count);
    visit(std::span<const HostView>(in_parts).first(in.size()), std::span<const HostView>(out_parts).first(out.size()));
  });
}

// Attention of each piece by itself, both ways: a kernel of the host or of a device.
template <class Call>
void attend_by_pieces(Call& call, std::size_t inputs, std::size_t outputs, void (*attend)(Call&)) {
  constexpr Attr kBothWays{0, {0, 1}};
  for_each_piece(call.in.first(inputs), call.out.first(outputs), WindowGrid::of(call.attr), [&](auto in, auto out) {
    Call piece = call.with(in, out, kBothWays);
    attend(piece);
    if (piece.error != nullptr) call.error = piece.error;
  });
}

}  // namespace ledger::host
