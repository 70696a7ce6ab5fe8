#include "core/models/dtensor.h"

#include <vector>

namespace ledger::dtensor {
namespace {

// [b, s, h] as a collective sees it: one rank's part after the other along the first dimension.
Shape stacked(const Shape& whole, Dim part) {
  Shape shape = whole;
  shape.set(0, {times(whole[0].size, whole[1].size / part.size), Sym::none});
  shape.set(1, part);
  return shape;
}

// torch.chunk along `dim`, in parts of `length`.
std::vector<Tensor> chunk(const Tensor& x, std::size_t dim, Dim length) {
  Shape shape = x.shape();
  shape.set(dim, length);
  const auto step = static_cast<std::uint64_t>(x.impl()->strides[dim]);
  std::vector<Tensor> parts;
  for (std::uint64_t from = 0; from < x.shape()[dim].size; from += length.size)
    parts.push_back(x.tape().view_of(x, shape, x.impl()->strides, from * step));
  return parts;
}

Tensor gathered(const Tensor& x, Dim whole) {
  Tape& tape = x.tape();
  const Tape::Among ranks(tape, RankGroup::tensor);
  Shape shape = x.shape();
  shape.set(1, whole);
  Tensor parts;
  {
    const Tape::In in(tape, Category::communication);
    parts = tape.empty(OpKind::all_gather, stacked(shape, x.dim(1)), x.dtype());
    tape.run(OpKind::all_gather, {&x}, {&parts});
  }
  return cat(chunk(parts, 0, x.dim(0)), 1, whole);
}

Tensor scattered(const Tensor& x, Dim part) {
  Tape& tape = x.tape();
  const Tape::Among ranks(tape, RankGroup::tensor);
  Tensor parts;
  {
    const Tape::In in(tape, Category::communication);
    parts = cat(chunk(x, 1, part), 0, stacked(x.shape(), part)[0]);
  }
  Shape shape = x.shape();
  shape.set(1, part);
  Tensor result = tape.empty(OpKind::reduce_scatter, shape, x.dtype());
  tape.run(OpKind::reduce_scatter, {&parts}, {&result}, {0, {static_cast<std::int64_t>(ReduceOp::sum), 0}});
  return result;
}

void gather_rule(Node& node, const Gradients& in, Gradients& out) {
  out[0] = scattered(in[0], node.input_shape[1]);
}

void scatter_rule(Node& node, const Gradients& in, Gradients& out) {
  out[0] = gathered(in[0], node.input_shape[1]);
}

// _functional_collectives.py, all_reduce: of a copy.
Tensor reduced(const Tensor& x, ReduceOp reduction) {
  Tape& tape = x.tape();
  const Tape::Among ranks(tape, RankGroup::tensor);
  const Tensor result = tape.empty(OpKind::all_reduce, x.shape(), x.dtype());
  tape.run(OpKind::clone, {&x}, {&result});
  all_reduce(result, reduction);
  return result;
}

TensorSeat seat_of(const Node& node) {
  return {static_cast<std::uint64_t>(node.attr.i[0]), static_cast<std::uint64_t>(node.attr.i[1])};
}

void remember(Node* node, TensorSeat seat) {
  if (node != nullptr) node->attr.i = {static_cast<std::int64_t>(seat.rank), static_cast<std::int64_t>(seat.ranks)};
}

// The gradient arrives whole, and so does the table's (embedding_dense_backward_strategy).
void embedding_rule(Node& node, const Gradients& in, Gradients& out) {
  Tape& tape = *node.tape;
  const Tensor ids = tape.unpack(node, 0);
  const TensorSeat seat = seat_of(node);
  const Dim rows = node.input_shape[0];
  const Tensor gradient = gathered(in[0], ids.dim(1));
  Shape shape = node.input_shape;
  shape.set(0, {times(rows.size, seat.ranks), Sym::V});
  const Tensor table = tape.empty(OpKind::embedding_backward, shape, gradient.dtype());
  tape.run(OpKind::embedding_backward, {&gradient, &ids}, {&table});
  const Tensor own = chunk(table, 0, rows)[static_cast<std::size_t>(seat.rank)];
  out[0] = clone(own);
}

// Targets that count for nothing, as class 0.
Tensor safe(const Tensor& targets) {
  const Tensor ignored = equal(targets, kIgnoreIndex);
  return masked_fill(targets, ignored, 0);
}

// _log_softmax: shifted by the largest of all ranks, less the logarithm of the sum of all.
Tensor log_softmax_of_ranks(const Tensor& logits) {
  const Shape rows{logits.dim(0), kOne};
  Tensor largest = amax(logits);
  largest = reduced(largest, ReduceOp::largest);
  const Tensor shifted = sub(logits, largest);
  Tensor sums;
  {
    const Tensor exponentials = exp(shifted);
    sums = sum_to(exponentials, rows);
  }
  sums = reduced(sums, ReduceOp::sum);
  const Tensor logarithm = log(sums);
  return sub(shifted, logarithm);
}

// _nll_loss_forward: each target's row is one rank's to look up.
Tensor nll_of_ranks(const Tensor& log_probabilities, const Tensor& labels, TensorSeat seat, Reduction reduction,
                    Tensor& total_weight) {
  const Tensor targets = safe(labels);
  const OwnRows own = own_rows(targets, seat, log_probabilities.dim(-1).size);
  const Tensor partial = gather(log_probabilities, as_column(own.places));
  masked_fill_inplace(partial, as_column(own.others), 0);
  Tensor result = reduced(partial, ReduceOp::sum);
  result = neg(as_row(result));
  {
    const Tensor ignored = equal(labels, kIgnoreIndex);
    result = masked_fill(result, ignored, 0);
  }
  if (reduction == Reduction::mean) {
    const Tensor counted = not_equal(labels, kIgnoreIndex);
    const Tensor number = count_true(counted);
    total_weight = to(number, log_probabilities.dtype());
  }
  result = sum_to(result, Shape{});
  return reduction == Reduction::mean ? div(result, total_weight) : result;
}

// -1 where the target is this rank's.
Tensor minus_one_hot(const Tensor& x, const Tensor& labels, TensorSeat seat) {
  const Tensor targets = safe(labels);
  Tensor result = zeros_like(x);
  const OwnRows own = own_rows(targets, seat, x.dim(-1).size);
  Tensor update = to(own.others, x.dtype());
  update = add(update, -1.0);
  const Tensor rows = arange(x.tape(), labels.dim(0));
  const Tensor values = as_column(update), places = as_column(own.places);
  x.tape().run(OpKind::scatter_source, {&values, &places}, {&result});
  return result;
}

// The gradient of a row: of the mean, or 0 where its target counts for nothing.
Tensor row_gradient(const Tensor& gradient, const Tensor& labels) {
  const Tensor ignored = equal(labels, kIgnoreIndex);
  const Tensor result = gradient.tape().empty(OpKind::masked_fill, {labels.dim(0), kOne}, gradient.dtype());
  const Tensor mask = as_column(ignored);
  gradient.tape().run(OpKind::masked_fill, {&gradient, &mask}, {&result});
  return result;
}

// _nll_loss_and_log_softmax_backward: (e^x less the one-hot) times the gradient, each step a tensor. The log-softmax's
// own backward pass hands it on.
void cross_entropy_rule(Node& node, const Gradients& in, Gradients& out) {
  Tape& tape = *node.tape;
  const Tensor x = tape.unpack(node, 0), labels = tape.unpack(node, 1);
  const bool of_mean = node.saved_count == 3;
  Tensor gradient = of_mean ? div(in[0], tape.unpack(node, 2)) : in[0];
  const Tensor one_hot = minus_one_hot(x, labels, seat_of(node));
  gradient = row_gradient(gradient, labels);
  Tensor sum;
  {
    const Tensor exponentials = exp(x);
    sum = add(one_hot, exponentials);
  }
  out[0] = mul(sum, gradient);
}

}  // namespace

Tensor gather_sequence(const Tensor& x, Dim whole) {
  Tape& tape = x.tape();
  Node* node = tape.node(gather_rule, {&x});
  Tensor result = gathered(x, whole);
  tape.attach(node, result);
  return result;
}

Tensor scatter_sums(const Tensor& x, Dim part) {
  Tape& tape = x.tape();
  Node* node = tape.node(scatter_rule, {&x});
  Tensor result = scattered(x, part);
  tape.attach(node, result);
  return result;
}

Tensor embedding(const Tensor& weight, const Tensor& ids, TensorSeat seat, Dim part) {
  Tape& tape = weight.tape();
  Node* node = tape.node(embedding_rule, {&weight});
  remember(node, seat);
  tape.save(node, ids);
  Tensor result;
  {
    const Tape::NoGrad no_grad(tape);
    const OwnRows own = own_rows(as_row(ids), seat, weight.dim(0).size);
    const Tensor rows = ledger::embedding(weight, view(own.places, ids.shape()));
    masked_fill_inplace(rows, view(own.others, {ids.dim(0), ids.dim(1), kOne}), 0);
    result = scattered(rows, part);
  }
  tape.attach(node, result);
  return result;
}

Tensor cross_entropy(const Tensor& logits, const Tensor& labels, TensorSeat seat, Reduction reduction) {
  Tape& tape = logits.tape();
  Node* node = tape.node(cross_entropy_rule, {&logits});
  remember(node, seat);
  Tensor result, loss, total_weight;
  {
    const Tape::NoGrad no_grad(tape);
    result = log_softmax_of_ranks(logits);
  }
  tape.save(node, result);
  tape.save(node, labels);
  {
    const Tape::NoGrad no_grad(tape);
    loss = nll_of_ranks(result, labels, seat, reduction, total_weight);
  }
  if (total_weight) tape.save(node, total_weight);
  tape.attach(node, loss);
  return loss;
}

Tensor sum_of_ranks(const Tensor& x) {
  return reduced(x, ReduceOp::sum);
}

}  // namespace ledger::dtensor
