// ring_attention_torch.cc - PyTorch's own ring attention, as scaled_dot_product_attention dispatches to it within
// context_parallel(): step by step, partial results and gradients in fp32.
#include <utility>

#include "core/models/ring_parts.h"
#include "core/trace/backward_rules.h"

namespace ledger {
namespace {

using ring::Tile;

// _AllGatherRotater and _AllToAllRotater. What is handed on may be gone once the other's is there.
class Rotation {
 public:
  Rotation(const Ring& ring, bool gathers) : ring_(ring), gathers_(gathers) {}

  void exchange(const Tensor& buffer) {
    ++turns_;
    if (!gathers_) {
      next_ = ring::new_buffer(buffer_like(buffer), 2, buffer.dtype(), OpKind::receive);
      ring::pass(ring_, true, buffer, next_);
    } else if (!next_) {
      const Tape::Among ranks(buffer.tape(), RankGroup::ring);
      next_ = ring::new_buffer(buffer_like(buffer), times(2, ring_.ranks), buffer.dtype(), OpKind::all_gather);
      buffer.tape().run(OpKind::all_gather, {&buffer}, {&next_});
    }
  }

  Tensor next() const {
    if (!gathers_) return next_;
    return ring::parts_of(next_, times(2, (ring_.rank + ring_.ranks - turns_) % ring_.ranks), 2);
  }

 private:
  static Tensor buffer_like(const Tensor& buffer) {
    Shape shape;
    for (std::size_t i = 1; i < kMaxRank; ++i)
      shape.push(buffer.shape()[i]);
    return buffer.tape().view_of(buffer, shape, {}, 0);
  }

  const Ring& ring_;
  bool gathers_;
  std::uint64_t turns_ = 0;
  Tensor next_;
};

// _partial_update: the first or second half replaced, or added to, in a new tensor.
Tensor with_half(const Tensor& x, const Tensor& value, std::uint64_t which, bool adds) {
  if (adds) add_inplace(ring::half(x, which), value);
  Tensor result = x.tape().empty(OpKind::cat, x.shape(), x.dtype());
  for (const std::uint64_t i : {0u, 1u})
    copy_into(ring::half(result, i), i == which && !adds ? value : ring::half(x, i));
  return result;
}

// _SDPAMerger.step.
void merge(ring::Part& all, const Tensor& made, const Tensor& statistics, bool second_half) {
  Tape& tape = made.tape();
  const Tensor block = to(made, DType::f32);
  if (!all.out) {
    all = {block, statistics};
    return;
  }
  Tensor lse = second_half ? ring::half(all.statistics, 1) : all.statistics;
  Tensor out = second_half ? ring::half(all.out, 1) : all.out;
  {
    Tensor weighed;
    {
      const Tensor share = sigmoid(sub(statistics, lse));
      const Tensor difference = sub(out, block);
      weighed = ring::beside(share) * difference;
    }
    out = sub(out, weighed);
  }
  {
    Tensor behind = sub(lse, statistics);
    const Tensor logarithm = tape.empty(OpKind::log_sigmoid, behind.shape(), behind.dtype());
    tape.run(OpKind::log_sigmoid, {&behind}, {&logarithm});
    behind.reset();
    lse = sub(lse, logarithm);
  }
  all.statistics = second_half ? with_half(all.statistics, lse, 1, false) : lse;
  all.out = second_half ? with_half(all.out, out, 1, false) : out;
}

// _templated_ring_attention.
ring::Part go_round(const Ring& ring, const Tensor& q, Tensor key, Tensor value, const Tensor& states) {
  ring::Part all;
  Rotation rotation(ring, ring.gathers);
  ring::Part made;
  for (std::uint64_t step = 0; step < ring.ranks; ++step) {
    if (step > 0) {
      const Tensor buffer = rotation.next();
      key = ring::part_of(buffer, 0, key);
      value = ring::part_of(buffer, 1, value);
    }
    if (step + 1 < ring.ranks) rotation.exchange(ring::joined(key, value, key));
    const Tile tile = ring::tile_of(ring, step);
    ring::Part now = ring::attend(ring, tile, q, key, value, states, step);
    made = std::move(now);
    merge(all, made.out, made.statistics, tile == Tile::later);
  }
  return all;
}

// zeros_like with a dtype of its own.
Tensor sums_like(const Tensor& x) {
  Tensor result = x.tape().empty(OpKind::zeros, x.shape(), DType::f32, &x.impl()->strides);
  x.tape().run(OpKind::zeros, {}, {&result});
  return result;
}

// The sum of a rank's gradients that came, and this one's. Contiguous, as keys and values are sent.
Tensor added(const Tensor& sum, const Tensor& value, Tile tile) {
  if (tile == Tile::earlier) return with_half(sum, value, 0, true);
  add_inplace(sum, value);
  return sum;
}

// _templated_ring_attention_backward: gradients of keys and values follow them around, whatever way these came.
Gradients go_round_back(const Ring& ring, ring::Whole& x, const Tensor& gradient, const Tensor& k, const Tensor& v) {
  Tensor dq = sums_like(x.q), dk = sums_like(k), dv = sums_like(v);
  x.k = contiguous(k);
  x.v = contiguous(v);
  Rotation rotation(ring, ring.gathers), back(ring, false);
  Tensor sent, buffer;
  Gradients made;
  for (std::uint64_t step = 0; step < ring.ranks; ++step) {
    if (step > 0) {
      const Tensor next = rotation.next();
      x.k = ring::part_of(next, 0, x.k);
      x.v = ring::part_of(next, 1, x.v);
    }
    if (step + 1 < ring.ranks) {
      sent = ring::joined(x.k, x.v, x.k);
      rotation.exchange(sent);
    }
    const Tile tile = ring::tile_of(ring, step);
    if (tile == Tile::later) x.second_statistics = contiguous(ring::half(x.statistics, 1));
    Gradients now = ring::gradients(ring, tile, gradient, x);
    made = std::move(now);
    if (step > 0) {
      buffer = back.next();
      dk = ring::part_of(buffer, 0, x.k);
      dv = ring::part_of(buffer, 1, x.v);
    }
    dk = added(dk, made[1], tile);
    dv = added(dv, made[2], tile);
    buffer = ring::joined(dk, dv, x.k);
    back.exchange(buffer);
    if (tile == Tile::later) {
      dq = with_half(dq, made[0], 1, true);
    } else {
      add_inplace(dq, made[0]);
    }
  }
  dq = to(dq, x.q.dtype());
  buffer = to(back.next(), x.k.dtype());
  return {dq, ring::part_of(buffer, 0, x.k), ring::part_of(buffer, 1, x.v)};
}

void torch_ring_rule(Node& node, const Gradients& in, Gradients& out) {
  ring::Whole x;
  Tensor k, v;
  std::size_t next = 0;
  for (Tensor* saved : {&x.q, &k, &v, &x.out, &x.statistics})
    *saved = node.tape->unpack(node, next++);
  out = go_round_back(ring::unpacked(node.attr), x, in[0], k, v);
}

}  // namespace

Tensor torch_ring_attention(const Tensor& query, const Tensor& key, const Tensor& value, const Ring& ring) {
  Tape& tape = query.tape();
  const Tensor q = tape.autocast_low(query);
  const Tensor k = tape.autocast_low(key);
  const Tensor v = tape.autocast_low(value);
  Node* node = tape.node(torch_ring_rule, {&q, &k, &v});
  if (node != nullptr) node->attr = ring::packed(ring);
  for (const Tensor* input : {&q, &k, &v})
    tape.save(node, *input);
  const OpKind op = ring.cudnn ? OpKind::cudnn_attention : OpKind::flash_attention;
  Tensor out, statistics;
  {
    const Tape::NoGrad no_grad(tape);
    const Shape rows{q.dim(0), q.dim(1), q.dim(2)};
    ring::Part all;
    if (!tape.hands_out(op)) {
      const Tensor states = ring::new_states(tape, ring.ranks);
      Tensor dense_keys = contiguous(k);
      Tensor dense_values = contiguous(v);
      all = go_round(ring, q, std::move(dense_keys), std::move(dense_values), states);
    }
    // What selective checkpointing keeps is the result of all steps.
    out = tape.empty(op, q.shape(), q.dtype(), &q.impl()->strides);
    statistics = tape.empty(op, rows, DType::f32);
    tape.run(OpKind::to_copy, {all.out ? &all.out : &out}, {&out});
    if (all.statistics) copy_into(statistics, all.statistics);
  }
  tape.save_output(node, out);
  tape.save(node, statistics);
  tape.attach(node, out);
  return out;
}

}  // namespace ledger
