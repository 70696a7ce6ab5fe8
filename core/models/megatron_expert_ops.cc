#include "core/models/megatron_expert_ops.h"

#include "core/models/megatron_tensors.h"

namespace ledger::megatron {
namespace {

constexpr Attr kSumOfRanks{0, {static_cast<std::int64_t>(ReduceOp::sum), 0}};

// [R, n] in `groups` equal groups of rows.
Tensor grouped_rows(const Tensor& x, Dim groups) {
  const Dim each{x.dim(0).size / groups.size, Sym::none};
  return x.tape().view_of(
      x, {groups, each, x.dim(1)},
      {static_cast<std::int64_t>(times(each.size, x.dim(1).size)), static_cast<std::int64_t>(x.dim(1).size), 1}, 0);
}

Tensor turned_groups(const Tensor& x) {
  const Strides& strides = x.impl()->strides;
  return x.tape().view_of(x, {x.dim(0), x.dim(2), x.dim(1)}, {strides[0], strides[2], strides[1]}, 0);
}

// Groups of `rows` times their matrices, into [R, n].
Tensor grouped_product(const Tensor& rows, const Tensor& matrices, Dim width) {
  Tape& tape = rows.tape();
  Tensor result = tape.empty(OpKind::bmm, {rows.dim(0), width}, rows.dtype());
  const Tensor a = grouped_rows(rows, matrices.dim(0)), out = grouped_rows(result, matrices.dim(0));
  tape.run(OpKind::bmm, {&a, &matrices}, {&out});
  return result;
}

Tensor with_rows(OpKind op, const Tensor& rows, Dim count, Attr attr = {}) {
  Shape shape = rows.shape();
  shape.set(0, count);
  return made(op, rows, shape, rows.dtype(), attr);
}

// --- backward rules
// -------------------------------------------------------------------------------------------------------------------

void gating_backward(Node& node, const Gradients& in, Gradients& out) {
  Tape& tape = *node.tape;
  const Tensor x = tape.unpack(node, 0), weight = tape.unpack(node, 1);
  const Tensor gradient = matrix(in[0]), rows = matrix(x);
  out[0] = tape.empty(OpKind::mm, x.shape(), x.dtype());
  const Tensor of_rows = matrix(out[0]), by_expert = turned(gradient);
  tape.run(OpKind::mm, {&gradient, &weight}, {&of_rows});
  out[1] = tape.empty(OpKind::mm, weight.shape(), weight.dtype());
  tape.run(OpKind::mm, {&by_expert, &rows}, {&out[1]});
}

void chosen_backward(Node& node, const Gradients& in, Gradients& out) {
  Tape& tape = *node.tape;
  const Tensor places = tape.unpack(node, 0);
  out[0] = tape.empty(OpKind::topk_backward, node.input_shape, in[0].dtype());
  tape.run(OpKind::topk_backward, {&in[0], &places}, {&out[0]});
}

void unpermute_backward(Node& node, const Gradients& in, Gradients& out) {
  const Tensor places = node.tape->unpack(node, 0);
  out[0] = node.tape->empty(OpKind::index_rows, node.input_shape, in[0].dtype());
  node.tape->run(OpKind::index_rows, {&in[0], &places}, {&out[0]});
}

// One collective of `group`, into `count` rows.
Tensor among(RankGroup group, OpKind op, const Tensor& rows, Dim count) {
  const Tape::Among ranks(rows.tape(), group);
  return with_rows(op, rows, count, op == OpKind::reduce_scatter ? kSumOfRanks : Attr{});
}

void exchange_backward(Node&, const Gradients& in, Gradients& out) {
  out[0] = among(RankGroup::expert, OpKind::all_to_all, in[0], in[0].dim(0));
}

void gather_rows_backward(Node& node, const Gradients& in, Gradients& out) {
  out[0] = among(RankGroup::expert_tensor, OpKind::reduce_scatter, in[0], node.input_shape[0]);
}

void scatter_rows_backward(Node& node, const Gradients& in, Gradients& out) {
  out[0] = among(RankGroup::expert_tensor, OpKind::all_gather, in[0], node.input_shape[0]);
}

Tensor swapped(const Tensor& rows, std::uint64_t outer, std::uint64_t inner) {
  Tape& tape = rows.tape();
  Tensor result = tape.empty(OpKind::cat, rows.shape(), rows.dtype());
  const std::uint64_t chunk = rows.shape().numel() / times(outer, inner);
  const Shape shape{{inner, Sym::none}, {outer, Sym::none}, {chunk, Sym::none}};
  const auto of = [&](const Tensor& x, std::uint64_t by_inner, std::uint64_t by_outer) {
    return tape.view_of(
        x, shape,
        {static_cast<std::int64_t>(times(by_inner, chunk)), static_cast<std::int64_t>(times(by_outer, chunk)), 1}, 0);
  };
  const Tensor from = of(rows, 1, inner), to = of(result, outer, 1);
  tape.run(OpKind::clone, {&from}, {&to});
  return result;
}

void swap_chunks_backward(Node& node, const Gradients& in, Gradients& out) {
  out[0] = swapped(in[0], static_cast<std::uint64_t>(node.attr.i[1]), static_cast<std::uint64_t>(node.attr.i[0]));
}

// The input's gradient first, then the weights', all of them at once.
void grouped_linear_backward(Node& node, const Gradients& in, Gradients& out) {
  Tape& tape = *node.tape;
  const Tensor x = tape.unpack(node, 0), weight = tape.unpack(node, 1);
  out[0] = grouped_product(in[0], weight, weight.dim(2));
  const Tensor rows = grouped_rows(x, weight.dim(0)), gradient = turned_groups(grouped_rows(in[0], weight.dim(0)));
  if (node.saved_count > 2) {
    const Tensor sum = tape.unpack(node, 2);
    tape.run(OpKind::baddbmm, {&sum, &gradient, &rows}, {&sum}, {1, {}});
    return;
  }
  out[1] = tape.empty(OpKind::bmm, weight.shape(), weight.dtype());
  tape.run(OpKind::bmm, {&gradient, &rows}, {&out[1]});
}

// weighted_swiglu_back, one compiled kernel: what it holds on the way lies in the gradient that it makes.
void weighted_swiglu_backward(Node& node, const Gradients& in, Gradients& out) {
  Tape& tape = *node.tape;
  const Tensor x = tape.unpack(node, 0), weights = tape.unpack(node, 1);
  out[0] = tape.empty(OpKind::swiglu_backward, x.shape(), x.dtype());
  out[1] = tape.empty(OpKind::sum, weights.shape(), weights.dtype());
  const Tensor gate = half(x, 0), up = half(x, 1), of_gate = half(out[0], 0), of_up = half(out[0], 1);
  tape.run(OpKind::swiglu, {&gate, &up}, {&of_gate});
  tape.run(OpKind::mul, {&of_gate, &in[0]}, {&of_gate});
  tape.run(OpKind::sum, {&of_gate}, {&out[1]});
  tape.run(OpKind::mul, {&in[0], &weights}, {&of_gate});
  tape.run(OpKind::swiglu_backward, {&of_gate, &gate, &up}, {&of_gate, &of_up});
}

// --- the router
// ----------------------------------------------------------------------------------------------------------

// torch.topk of the logits; really run, the logits of the experts whose turn it is.
TopK chosen(const Tensor& logits, Dim k, std::uint64_t sequences) {
  Tape& tape = logits.tape();
  Node* node = tape.node(chosen_backward, {&logits});
  const Shape shape{logits.dim(0), k};
  TopK top;
  top.values = tape.empty(OpKind::topk, shape, logits.dtype());
  top.places = tape.empty(OpKind::topk, shape, DType::i64);
  const Attr turn{0, {static_cast<std::int64_t>(logits.dim(1).size), static_cast<std::int64_t>(sequences)}};
  tape.run(OpKind::experts_in_turn, {}, {&top.places}, turn);
  tape.run(OpKind::gather, {&logits, &top.places}, {&top.values});
  tape.save(node, top.places);
  tape.attach(node, top.values);
  return top;
}

// torch.zeros_like(logits).scatter(1, top_indices, probs)
Tensor spread(const Tensor& probabilities, const Tensor& places, const Shape& shape) {
  Tape& tape = probabilities.tape();
  const Tensor zero = zeros(tape, shape, probabilities.dtype());
  Tensor copy;
  {
    const Tape::NoGrad no_grad(tape);
    copy = clone(zero);
  }
  return scatter_inplace(copy, places, probabilities);
}

// torch.zeros_like(logits).int().scatter(1, top_indices, 1).bool()
Tensor map_of(const Tensor& places, const Shape& shape, DType dtype) {
  Tape& tape = places.tape();
  const Tape::NoGrad no_grad(tape);
  Tensor numbers;
  {
    const Tensor zero = zeros(tape, shape, dtype);
    numbers = to(zero, DType::i32);
  }
  numbers = clone(numbers);
  scatter_value(numbers, places, 1);
  return to(numbers, DType::boolean);
}

}  // namespace

Tensor gating_linear(const Tensor& x, const Tensor& weight) {
  Tape& tape = x.tape();
  Node* node = tape.node(gating_backward, {&x, &weight});
  tape.save(node, x);
  tape.save(node, weight);
  Shape shape = x.shape();
  shape.set_last(weight.dim(0));
  Tensor result = tape.empty(OpKind::mm, shape, x.dtype());
  const Tensor rows = matrix(x), experts = turned(weight), out = matrix(result);
  tape.run(OpKind::mm, {&rows, &experts}, {&out});
  tape.attach(node, result);
  return result;
}

Routed route(const Tensor& logits, Dim k, bool after, std::uint64_t sequences) {
  Tensor scores, places;
  if (after) {
    const TopK top = chosen(logits, k, sequences);
    scores = softmax(top.values, DType::f32);
    places = top.places;
  } else {
    const Tensor all = softmax(logits, DType::f32);
    const TopK top = chosen(all, k, sequences);
    scores = top.values;
    places = top.places;
  }
  scores = to(scores, logits.dtype());
  Routed routed;
  routed.probabilities = spread(scores, places, logits.shape());
  routed.map = map_of(places, logits.shape(), logits.dtype());
  return routed;
}

// --- to the experts and back
// -----------------------------------------------------------------------------------------------

Permuted permute(const Tensor& tokens, const Routed& routing, Dim visits) {
  Tape& tape = tokens.tape();
  const Dim pairs{routing.map.shape().numel(), Sym::none};
  Permuted permuted;
  Tensor order;  // of all pairs of an expert and a token; those that meet come first
  {
    const Tape::NoGrad no_grad(tape);
    const Tensor by_expert = contiguous(transpose(routing.map, 0, 1));
    const Tensor flags = view(by_expert, {pairs});
    const Tensor sorted = tape.empty(OpKind::sort_true_first, {pairs}, DType::boolean);
    order = tape.empty(OpKind::sort_true_first, {pairs}, DType::i64);
    tape.run(OpKind::sort_true_first, {&flags}, {&sorted, &order});
  }
  order = slice(order, 0, 0, visits);
  const Attr count{0, {static_cast<std::int64_t>(tokens.dim(0).size), 0}};
  permuted.places = made(OpKind::remainder, order, {visits}, DType::i64, count);
  {
    const Tensor by_expert = contiguous(transpose(routing.probabilities, 0, 1));
    permuted.probabilities = index_rows(view(by_expert, {pairs}), order);
  }
  permuted.tokens = index_rows(tokens, permuted.places);
  return permuted;
}

Tensor unpermute(const Tensor& visits, const Tensor& places, const Shape& tokens, bool twice) {
  Tape& tape = visits.tape();
  Node* node = tape.node(unpermute_backward, {&visits});
  Tensor result = tape.empty(OpKind::index_rows_backward, tokens, visits.dtype());
  if (twice) result = tape.empty(OpKind::index_rows_backward, tokens, visits.dtype());
  tape.run(OpKind::index_rows_backward, {&visits, &places}, {&result});
  tape.save(node, places);
  tape.attach(node, result);
  return result;
}

Tensor exchange(const Tensor& rows, std::uint64_t ranks) {
  if (ranks == 1) return rows;
  Node* node = rows.tape().node(exchange_backward, {&rows});
  Tensor result = among(RankGroup::expert, OpKind::all_to_all, rows, rows.dim(0));
  rows.tape().attach(node, result);
  return result;
}

Tensor gather_rows(const Tensor& rows, std::uint64_t ranks) {
  if (ranks == 1) return rows;
  Node* node = rows.tape().node(gather_rows_backward, {&rows});
  Tensor result =
      among(RankGroup::expert_tensor, OpKind::all_gather, rows, {times(rows.dim(0).size, ranks), Sym::none});
  rows.tape().attach(node, result);
  return result;
}

Tensor scatter_rows(const Tensor& rows, std::uint64_t ranks) {
  if (ranks == 1) return rows;
  Node* node = rows.tape().node(scatter_rows_backward, {&rows});
  Tensor result = among(RankGroup::expert_tensor, OpKind::reduce_scatter, rows, {rows.dim(0).size / ranks, Sym::none});
  rows.tape().attach(node, result);
  return result;
}

Tensor swap_chunks(const Tensor& rows, std::uint64_t outer, std::uint64_t inner) {
  Node* node = rows.tape().node(swap_chunks_backward, {&rows});
  if (node != nullptr) node->attr.i = {static_cast<std::int64_t>(outer), static_cast<std::int64_t>(inner)};
  Tensor result = swapped(rows, outer, inner);
  rows.tape().attach(node, result);
  return result;
}

// --- experts
// ---------------------------------------------------------------------------------------------------------------

Tensor grouped_linear(const Tensor& x, const Tensor& weight, const Tensor& main_gradient) {
  Tape& tape = x.tape();
  Node* node = tape.node(grouped_linear_backward, {&x, &weight});
  tape.save(node, x);
  tape.save(node, weight);
  if (main_gradient) tape.save(node, main_gradient);
  Tensor result = grouped_product(x, turned_groups(weight), weight.dim(1));
  tape.attach(node, result);
  return result;
}

Tensor weighted_swiglu(const Tensor& x, const Tensor& probabilities) {
  Tape& tape = x.tape();
  Node* node = tape.node(weighted_swiglu_backward, {&x, &probabilities});
  tape.save(node, x);
  tape.save(node, probabilities);
  Tensor result = tape.empty(OpKind::swiglu, {x.dim(0), {x.dim(1).size / 2, Sym::none}}, x.dtype());
  const Tensor gate = half(x, 0), up = half(x, 1);
  tape.run(OpKind::swiglu, {&gate, &up}, {&result});
  tape.run(OpKind::mul, {&result, &probabilities}, {&result});
  tape.attach(node, result);
  return result;
}

}  // namespace ledger::megatron
