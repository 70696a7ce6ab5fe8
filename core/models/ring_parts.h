// ring_parts.h - what both ways around the ring share: halves, one kernel's part of the result, and messages.
#pragma once

#include "core/models/ring_attention.h"

namespace ledger::ring {

// Which keys the queries meet: this rank's own; of an earlier rank, whose first half alone all queries see; of a later
// one, which the second half of queries sees whole.
enum class Tile : std::uint8_t { own, earlier, later };

// In step `step` keys come from the rank that is so many places before this one.
inline Tile tile_of(const Ring& ring, std::uint64_t step) {
  if (step == 0) return Tile::own;
  return step <= ring.rank ? Tile::earlier : Tile::later;
}

Attr packed(const Ring& ring);
Ring unpacked(const Attr& attr);

// `length` of dimension 2 from `start` on; its first (0) or second half.
Tensor tokens(const Tensor& x, std::uint64_t start, std::uint64_t length);
Tensor half(const Tensor& x, std::uint64_t which);
// [.., s] beside [.., s, d].
Tensor beside(const Tensor& statistics);

// Keys and values one after the other in a buffer [parts, b, n, s, d]: part `which`, as `like` lies in memory.
Tensor new_buffer(const Tensor& like, std::uint64_t parts, DType dtype, OpKind op);
Tensor part_of(const Tensor& buffer, std::uint64_t which, const Tensor& like);
Tensor joined(const Tensor& k, const Tensor& v, const Tensor& like);  // in k's dtype
// Parts [first, first + count) of a buffer as one.
Tensor parts_of(const Tensor& buffer, std::uint64_t first, std::uint64_t count);

// A kernel's result for some queries and some keys, and its logsumexp.
struct Part {
  Tensor out, statistics;
};
Tensor new_states(Tape& tape, std::uint64_t steps);  // random states, of all steps together
Part attend(const Ring& ring, Tile tile, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& states,
            std::uint64_t step);

struct Whole {
  Tensor q, k, v, out, statistics, second_statistics;
};
// Gradients of the kernel's operands, halves of them where the tile has halves.
Gradients gradients(const Ring& ring, Tile tile, const Tensor& gradient, const Whole& of);

// To the next rank (forward) or the one before, and from the other side at once.
void pass(const Ring& ring, bool forward, const Tensor& out, const Tensor& in);

}  // namespace ledger::ring
