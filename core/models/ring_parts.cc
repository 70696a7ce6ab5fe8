#include "core/models/ring_parts.h"

#include <array>

#include "core/trace/backward_rules.h"
#include "core/trace/strides.h"

namespace ledger {

void copy_own_pieces(const Tensor& whole, int dim, std::uint64_t rank, std::uint64_t ranks, const Tensor& into) {
  const std::uint64_t piece = whole.dim(dim).size / (2 * ranks);
  const auto at = [&](const Tensor& x, std::uint64_t number) {
    Shape shape = x.shape();
    shape.set(static_cast<std::size_t>(dim), {piece, Sym::none});
    const auto step = static_cast<std::uint64_t>(x.impl()->strides[static_cast<std::size_t>(dim)]);
    return x.tape().view_of(x, shape, x.impl()->strides, times(times(number, piece), step));
  };
  copy_into(at(into, 0), at(whole, rank));
  copy_into(at(into, 1), at(whole, 2 * ranks - 1 - rank));
}

Tensor own_pieces(const Tensor& whole, int dim, std::uint64_t rank, std::uint64_t ranks, OpKind op) {
  Shape shape = whole.shape();
  shape.set(static_cast<std::size_t>(dim), {whole.dim(dim).size / ranks, Sym::none});
  Tensor own = whole.tape().empty(op, shape, whole.dtype());
  copy_own_pieces(whole, dim, rank, ranks, own);
  return own;
}

namespace ring {

// Ranks fit 20 bits: config/recipe.cc, kMaxRanks.
Attr packed(const Ring& ring) {
  const std::uint64_t places = ring.rank | ring.ranks << 20 | ring.exchanging << 40;
  return {ring.dropout, {static_cast<std::int64_t>(places), (ring.cudnn ? 1 : 0) | (ring.gathers ? 2 : 0)}};
}

Ring unpacked(const Attr& attr) {
  constexpr std::uint64_t kPlace = (1u << 20) - 1;
  const auto places = static_cast<std::uint64_t>(attr.i[0]);
  return {places & kPlace, places >> 20 & kPlace, places >> 40, (attr.i[1] & 1) != 0, (attr.i[1] & 2) != 0, attr.x};
}

Tensor tokens(const Tensor& x, std::uint64_t start, std::uint64_t length) {
  Shape shape = x.shape();
  shape.set(2, {length, Sym::none});
  const Strides& strides = x.impl()->strides;
  return x.tape().view_of(x, shape, strides, times(start, static_cast<std::uint64_t>(strides[2])));
}

Tensor half(const Tensor& x, std::uint64_t which) {
  const std::uint64_t length = x.dim(2).size / 2;
  return tokens(x, which * length, length);
}

Tensor beside(const Tensor& statistics) {
  Shape shape = statistics.shape();
  Strides strides = statistics.impl()->strides;
  shape.push(kOne);
  strides[3] = 0;
  return statistics.tape().view_of(statistics, shape, strides, 0);
}

// --- buffers
// -----------------------------------------------------------------------------------------------------------------

Tensor new_buffer(const Tensor& like, std::uint64_t parts, DType dtype, OpKind op) {
  return like.tape().empty(op, {{parts, Sym::none}, like.dim(0), like.dim(1), like.dim(2), like.dim(3)}, dtype);
}

Tensor part_of(const Tensor& buffer, std::uint64_t which, const Tensor& like) {
  return buffer.tape().view_of(buffer, like.shape(), like.impl()->strides, times(which, like.shape().numel()));
}

Tensor joined(const Tensor& k, const Tensor& v, const Tensor& like) {
  Tensor buffer = new_buffer(k, 2, k.dtype(), OpKind::cat);
  copy_into(part_of(buffer, 0, like), k);
  copy_into(part_of(buffer, 1, like), v);
  return buffer;
}

Tensor parts_of(const Tensor& buffer, std::uint64_t first, std::uint64_t count) {
  Shape shape = buffer.shape();
  shape.set(0, {count, Sym::none});
  const Strides& strides = buffer.impl()->strides;
  return buffer.tape().view_of(buffer, shape, strides, times(first, static_cast<std::uint64_t>(strides[0])));
}

void pass(const Ring& ring, bool forward, const Tensor& out, const Tensor& in) {
  Tape& tape = out.tape();
  const Tape::Among ranks(tape, RankGroup::ring);
  const std::uint64_t next = (ring.rank + 1) % ring.ranks, before = (ring.rank + ring.ranks - 1) % ring.ranks;
  tape.run(OpKind::send, {&out}, {}, {0, {static_cast<std::int64_t>(forward ? next : before), 0}});
  tape.run(OpKind::receive, {}, {&in}, {0, {static_cast<std::int64_t>(forward ? before : next), 0}});
}

// --- one kernel
// --------------------------------------------------------------------------------------------------------------

Tensor new_states(Tape& tape, std::uint64_t steps) {
  return tape.empty(OpKind::logaddexp, {{2 * steps, Sym::none}}, DType::i64);
}

// Allocated as what is merged, not as attention's result, which selective checkpointing would keep.
Part attend(const Ring& ring, Tile tile, const Tensor& all_queries, const Tensor& keys, const Tensor& values,
            const Tensor& states, std::uint64_t step) {
  Tape& tape = all_queries.tape();
  const Tensor q = tile == Tile::later ? half(all_queries, 1) : all_queries;
  const Tensor k = tile == Tile::earlier ? half(keys, 0) : keys, v = tile == Tile::earlier ? half(values, 0) : values;
  const auto strides = elementwise_strides(q.shape(), q);
  Part part;
  part.out = tape.empty(OpKind::logaddexp, q.shape(), q.dtype(), strides ? &*strides : nullptr);
  part.statistics = tape.empty(OpKind::logaddexp, {q.dim(0), q.dim(1), q.dim(2)}, DType::f32);
  const Tensor first = tape.view_of(states, Shape{}, {}, 2 * step);
  const Tensor second = tape.view_of(states, Shape{}, {}, 2 * step + 1);
  const Tensor scratch = ring.cudnn ? tape.cudnn_scratch() : Tensor();
  const std::array<const Tensor*, 3> inputs{&q, &k, &v};
  const std::array<const Tensor*, 5> outputs{&part.out, &part.statistics, &first, &second, &scratch};
  tape.run(ring.cudnn ? OpKind::cudnn_attention : OpKind::flash_attention, inputs,
           std::span(outputs).first(scratch ? 5 : 4), attention_attr(0, ring.dropout, tile == Tile::own));
  return part;
}

Gradients gradients(const Ring& ring, Tile tile, const Tensor& gradient, const Whole& of) {
  const bool later = tile == Tile::later, earlier = tile == Tile::earlier;
  const auto queries = [&](const Tensor& x) { return later ? half(x, 1) : x; };
  const auto keys = [&](const Tensor& x) { return earlier ? half(x, 0) : x; };
  const Tensor to_out = queries(gradient), q = queries(of.q), out = queries(of.out);
  const Tensor k = keys(of.k), v = keys(of.v);
  Gradients result;
  backward::attention_gradients(ring.cudnn ? OpKind::cudnn_attention_backward : OpKind::flash_attention_backward,
                                {&to_out, &q, &k, &v, &out, later ? &of.second_statistics : &of.statistics}, result,
                                attention_attr(0, ring.dropout, tile == Tile::own));
  return result;
}

}  // namespace ring
}  // namespace ledger
