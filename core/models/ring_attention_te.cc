// ring_attention_te.cc - Transformer Engine's attention of ranks that share sequences: p2p, a2a and a2a+p2p; the way by
// an all-gather is ring_attention_gather.cc's.
#include <algorithm>
#include <utility>
#include <vector>

#include "core/models/ring_exchange.h"
#include "core/trace/backward_rules.h"

namespace ledger {
namespace {

using ring::Tile;

// Those that keys and values go around among.
Ring around(const Ring& all) {
  Ring outer = all;
  outer.rank = all.rank / all.exchanging;
  outer.ranks = all.ranks / all.exchanging;
  return outer;
}

// --- around the ring (AttnFuncWithCPAndKVP2P)
// --------------------------------------------------------------------------

// out += part times exp(its logsumexp - the merged one), or the first of them: fused kernels, which make nothing beside
// the result.
void add_part(const ring::Part& part, const Tensor& out, const Tensor& statistics, bool first) {
  Tape& tape = out.tape();
  tape.run(OpKind::sub, {&part.statistics, &statistics}, {&part.statistics});
  tape.run(OpKind::exp, {&part.statistics}, {&part.statistics});
  const Tensor weight = ring::beside(part.statistics);
  if (first) return tape.run(OpKind::mul, {&part.out, &weight}, {&out});
  tape.run(OpKind::mul_inplace, {&part.out, &weight}, {&part.out});
  add_inplace(out, part.out);
}

// All buffers and partial results live until the end.
void go_around(const Ring& outer, ring::Whole& x, const Tensor& states) {
  Tape& tape = x.q.tape();
  const auto steps = static_cast<std::size_t>(outer.ranks);
  std::vector<Tensor> buffers(steps);
  std::vector<ring::Part> parts(steps);
  const auto is_later = [&](std::size_t step) { return ring::tile_of(outer, step) == Tile::later; };
  const auto merge = [&](std::size_t step) {
    if (step == 0) {
      x.statistics = clone(parts[0].statistics);
      return;
    }
    const Tensor into = is_later(step) ? ring::half(x.statistics, 1) : x.statistics;
    tape.run(OpKind::logaddexp, {&into, &parts[step].statistics}, {&into});
  };
  const Tensor k = x.k, v = x.v;
  buffers[0] = ring::joined(k, v, k);
  for (std::size_t step = 0; step < steps; ++step) {
    if (step + 1 < steps) {
      buffers[step + 1] = ring::new_buffer(k, 2, k.dtype(), OpKind::receive);
      ring::pass(outer, true, buffers[step], buffers[step + 1]);
    }
    x.k = ring::part_of(buffers[step], 0, k);
    x.v = ring::part_of(buffers[step], 1, v);
    parts[step] = ring::attend(outer, ring::tile_of(outer, step), x.q, x.k, x.v, states, step);
    if (step > 0) merge(step - 1);
  }
  merge(steps - 1);
  const Tensor& own = parts[0].out;
  x.out = tape.empty(OpKind::mul, own.shape(), own.dtype(), &own.impl()->strides);
  for (std::size_t step = 0; step < steps; ++step) {
    const bool later = is_later(step);
    add_part(parts[step], later ? ring::half(x.out, 1) : x.out, later ? ring::half(x.statistics, 1) : x.statistics,
             step == 0);
  }
}

// What is added to, or written where nobody has been yet.
void put(const Tensor& into, const Tensor& value, bool first) {
  first ? copy_into(into, value) : add_inplace(into, value);
}

void add_to_queries(const Ring& outer, std::uint64_t step, const Tensor& dq, const Tensor& value) {
  const std::uint64_t all_seen = outer.ranks - outer.rank - 1;  // from this step on every query sees keys
  if (step < all_seen) return put(ring::half(dq, 1), value, step == 0);
  if (step > all_seen || step == 0) return put(dq, value, step == 0);
  put(ring::half(dq, 0), ring::half(value, 0), true);
  put(ring::half(dq, 1), ring::half(value, 1), false);
}

// A rank's second half of keys is seen by later halves of earlier ranks; of rank 0 by itself alone.
void add_to_keys(const Ring& outer, Tile tile, std::uint64_t step, const Tensor& dk, const Tensor& value) {
  const bool first = step == 0;
  if (tile == Tile::earlier) return put(ring::half(dk, 0), value, first);
  if (tile == Tile::later || outer.rank != 0) return put(dk, value, first);
  put(ring::half(dk, 0), ring::half(value, 0), false);
  put(ring::half(dk, 1), ring::half(value, 1), true);
}

Tensor exchanged_gradient(const Ring& all, const Tensor& gradient) {
  return all.exchanging == 1 ? gradient : ring::exchanged({gradient}, all.exchanging, true)[0];
}

// Keys, values and their gradients go back the way that keys and values came.
Gradients come_back(const Ring& all, ring::Whole& x, const Tensor& given) {
  const Ring outer = around(all);
  Tape& tape = given.tape();
  if (outer.rank + 1 < outer.ranks) x.second_statistics = contiguous(ring::half(x.statistics, 1));
  const Tensor dq = tape.empty(OpKind::add_inplace, x.q.shape(), x.q.dtype(), &x.q.impl()->strides);
  std::array<Tensor, 2> buffers;
  for (Tensor& buffer : buffers)
    buffer = ring::new_buffer(x.k, 4, x.k.dtype(), OpKind::receive);  // k, v and their gradients
  copy_into(ring::part_of(buffers[0], 0, x.k), x.k);
  copy_into(ring::part_of(buffers[0], 1, x.v), x.v);
  const Tensor k = x.k, v = x.v, gradient = exchanged_gradient(all, given);
  Gradients made, result;
  for (std::uint64_t step = 0; step < outer.ranks; ++step) {
    const Tensor &here = buffers[step % 2], &coming = buffers[(step + 1) % 2];
    const bool last = step + 1 == outer.ranks;
    const std::uint64_t from = last ? 2 : 0, count = step == 0 || last ? 2 : 4;
    ring::pass(outer, false, ring::parts_of(here, from, count), ring::parts_of(coming, from, count));
    made = {};
    x.k = ring::part_of(here, 0, k);
    x.v = ring::part_of(here, 1, v);
    const Tile tile = ring::tile_of(outer, outer.ranks - 1 - step);
    made = ring::gradients(outer, tile, gradient, x);
    add_to_queries(outer, step, dq, made[0]);
    result[1] = ring::part_of(coming, 2, k);
    result[2] = ring::part_of(coming, 3, v);
    add_to_keys(outer, tile, step, result[1], made[1]);
    add_to_keys(outer, tile, step, result[2], made[2]);
  }
  result[0] = dq;
  if (all.exchanging == 1) return result;
  const std::vector<Tensor> back = ring::exchanged({result[0], result[1], result[2]}, all.exchanging, false);
  std::copy(back.begin(), back.end(), result.begin());
  return result;
}

// AttnFuncWithCPAndQKVOA2A: all tokens of some heads.
Gradients of_heads(const Ring& all, const ring::Whole& x, const Tensor& given) {
  const Tensor gradient = exchanged_gradient(all, given);
  Gradients result = ring::gradients(all, Tile::own, gradient, x);
  const std::vector<Tensor> back = ring::exchanged({result[0], result[1], result[2]}, all.exchanging, false);
  std::copy(back.begin(), back.end(), result.begin());
  return result;
}

void te_ring_rule(Node& node, const Gradients& in, Gradients& out) {
  const Ring all = ring::unpacked(node.attr);
  ring::Whole x;
  Tensor states;
  std::size_t next = 0;
  for (Tensor* saved : {&x.q, &x.k, &x.v, &x.out, &x.statistics, &states})
    *saved = node.tape->unpack(node, next++);
  out = all.exchanging == all.ranks ? of_heads(all, x, in[0]) : come_back(all, x, in[0]);
}

}  // namespace

Tensor te_ring_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Ring& all) {
  if (all.gathers) return ring::gathered_attention(q, k, v, all);
  Tape& tape = q.tape();
  Node* node = tape.node(te_ring_rule, {&q, &k, &v});
  if (node != nullptr) node->attr = ring::packed(all);
  Tensor result;
  {
    const Tape::NoGrad no_grad(tape);
    ring::Whole x{q, k, v, {}, {}, {}};
    if (all.exchanging != 1) {
      std::vector<Tensor> heads = ring::exchanged({q, k, v}, all.exchanging, true);
      x.q = std::move(heads[0]);
      x.k = std::move(heads[1]);
      x.v = std::move(heads[2]);
    }
    const Ring outer = around(all);
    const Tensor states = ring::new_states(tape, outer.ranks);
    if (outer.ranks == 1) {
      ring::Part part = ring::attend(all, Tile::own, x.q, x.k, x.v, states, 0);
      x.out = std::move(part.out);
      x.statistics = std::move(part.statistics);
    } else {
      go_around(outer, x, states);
    }
    result = all.exchanging == 1 ? tape.detach(x.out) : ring::exchanged({x.out}, all.exchanging, false)[0];
    for (const Tensor& saved : {x.q, x.k, x.v, x.out, x.statistics, states})
      tape.save(node, saved);
  }
  tape.attach(node, result);
  return result;
}

}  // namespace ledger
