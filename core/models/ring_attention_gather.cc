// ring_attention_gather.cc - Transformer Engine's attention of ranks that share sequences by an all-gather of keys and
// values (AttnFuncWithCPAndKVAllGather): each of a rank's two pieces of queries meets all keys up to its end.
#include <array>

#include "core/models/ring_exchange.h"

namespace ledger::ring {
namespace {

// Dense with tokens first, or as `like` is: copies where it is not.
Tensor tokens_first(const Tensor& x) {
  const Tensor by_token = contiguous(transpose(transpose(x, 1, 2), 0, 1));
  return transpose(transpose(by_token, 0, 1), 1, 2);
}

Tensor laid_like(const Tensor& x, const Tensor& like) {
  const Strides& order = like.impl()->strides;
  if (order[0] < order[2] || like.dim(0).size == 1) return tokens_first(x);
  return transpose(contiguous(transpose(x, 1, 2)), 1, 2);
}

// gather_along_first_dim.
Tensor parts_of_all(const Tensor& own, std::uint64_t ranks) {
  Tape& tape = own.tape();
  const Tape::Among group(tape, RankGroup::ring);
  Tensor parts = new_parts(OpKind::all_gather, own, ranks, own.shape());
  const Tensor from = flat(own), to = flat(parts);
  tape.run(OpKind::all_gather, {&from}, {&to});
  return parts;
}

struct KeysAndValues {
  Tensor k, v;
};

KeysAndValues of_all(const Tensor& k, const Tensor& v, std::uint64_t ranks) {
  KeysAndValues all;
  all.k = parts_of_all(k, ranks);
  all.v = parts_of_all(v, ranks);
  all.k = whole_tokens(all.k, ranks);
  all.v = whole_tokens(all.v, ranks);
  return all;
}

// Tokens up to the end of the rank's first (0) or second piece.
std::uint64_t seen(const Ring& ring, std::uint64_t which, std::uint64_t piece) {
  return times(which == 0 ? ring.rank + 1 : 2 * ring.ranks - ring.rank, piece);
}

KeysAndValues seen_by(const Ring& ring, std::uint64_t which, const KeysAndValues& all, const Tensor& q) {
  const std::uint64_t length = seen(ring, which, q.dim(2).size / 2);
  KeysAndValues some;
  some.k = laid_like(tokens(all.k, 0, length), q);
  some.v = laid_like(tokens(all.v, 0, length), q);
  return some;
}

Tensor zeros_of(const Tensor& like, const Shape& shape) {
  const Tensor first = part_at(new_parts(OpKind::zeros, like, 1, shape), 0);
  like.tape().run(OpKind::zeros, {}, {&first});
  return first;
}

// reduce_scatter_along_first_dim.
Tensor own_sum(const Tensor& parts) {
  Tape& tape = parts.tape();
  const Tape::Among group(tape, RankGroup::ring);
  const Tensor first = part_at(parts, 0);
  const Tensor sum = part_at(new_parts(OpKind::reduce_scatter, first, 1, first.shape()), 0);
  const Tensor from = flat(parts), to = flat(sum);
  tape.run(OpKind::reduce_scatter, {&from}, {&to}, {0, {static_cast<std::int64_t>(ReduceOp::sum), 0}});
  return sum;
}

void gathered_rule(Node& node, const Gradients& in, Gradients& out) {
  const Ring ring = unpacked(node.attr);
  std::array<Tensor, 7> saved;
  for (std::size_t i = 0; i < saved.size(); ++i)
    saved[i] = node.tape->unpack(node, i);
  const auto& [q, k, v, result, first, second, states] = saved;
  const Tensor dq = node.tape->empty(OpKind::add_inplace, q.shape(), q.dtype(), &q.impl()->strides);
  Shape whole = k.shape();
  whole.set(2, {times(k.dim(2).size, ring.ranks), Sym::none});
  Tensor dk = zeros_of(k, whole);
  Tensor dv = zeros_of(v, whole);
  const KeysAndValues all = of_all(k, v, ring.ranks);
  std::array<Gradients, 2> made;
  Whole x;
  Tensor gradient;
  for (const std::size_t which : {0u, 1u}) {
    x.q = laid_like(half(q, which), q);
    x.k.reset();
    x.v.reset();
    KeysAndValues some = seen_by(ring, which, all, q);
    x.k = std::move(some.k);
    x.v = std::move(some.v);
    x.out = laid_like(half(result, which), q);
    gradient = laid_like(half(in[0], which), q);
    x.statistics = which == 0 ? first : second;
    made[which] = gradients(ring, Tile::own, gradient, x);
    copy_into(half(dq, which), made[which][0]);
    const std::uint64_t length = x.k.dim(2).size;
    add_inplace(tokens(dk, 0, length), tokens_first(made[which][1]));
    add_inplace(tokens(dv, 0, length), tokens_first(made[which][2]));
  }
  dk = by_tokens(dk, ring.ranks);
  dv = by_tokens(dv, ring.ranks);
  dk = own_sum(dk);
  dv = own_sum(dv);
  out[0] = dq;
  out[1] = laid_like(dk, q);
  out[2] = laid_like(dv, q);
}

}  // namespace

Tensor gathered_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Ring& ring) {
  Tape& tape = q.tape();
  Node* node = tape.node(gathered_rule, {&q, &k, &v});
  if (node != nullptr) node->attr = packed(ring);
  Tensor out;
  {
    const Tape::NoGrad no_grad(tape);
    const Tensor keys = tokens_first(k);
    const Tensor values = tokens_first(v);
    const KeysAndValues all = of_all(keys, values, ring.ranks);
    out = tape.empty(OpKind::copy_into, q.shape(), q.dtype(), &q.impl()->strides);
    const Tensor unread = zeros_of(q, q.shape());  // for sequences of several lengths, and made for these, too
    const Tensor states = new_states(tape, 2);
    std::array<Part, 2> parts;
    Tensor queries;
    KeysAndValues some;
    for (const std::size_t which : {0u, 1u}) {
      queries = laid_like(half(q, which), q);
      some = {};  // its names are the slices' first
      some = seen_by(ring, which, all, q);
      parts[which] = attend(ring, Tile::own, queries, some.k, some.v, states, which);
      if (which == 1) copy_into(half(out, 0), parts[0].out);
    }
    copy_into(half(out, 1), parts[1].out);
    for (const Tensor& saved : {q, keys, values, out, parts[0].statistics, parts[1].statistics, states})
      tape.save(node, saved);
    out = tape.detach(out);
  }
  tape.attach(node, out);
  return out;
}

}  // namespace ledger::ring
