// megatron_loss.cc - a vocabulary of which each tensor-parallel rank has its part: rows of the embedding, and the loss.
#include "core/models/megatron_tensors.h"

namespace ledger::megatron {
namespace {

// 1 is taken off the probability of each target that is this rank's.
void subtract_one_hot(const Tensor& probabilities, const Tensor& others, const Tensor& places) {
  Tape& tape = probabilities.tape();
  const Tensor rows = matrix(probabilities), at = as_column(places);
  const Tensor numbers = arange(tape, rows.dim(0));
  Tensor update = to(others, probabilities.dtype());
  update = rsub(update, 1);
  const Tensor value = tape.empty(OpKind::gather, {rows.dim(0), kOne}, probabilities.dtype());
  tape.run(OpKind::gather, {&rows, &at}, {&value});
  const Tensor less_by = as_column(update);
  tape.run(OpKind::sub, {&value, &less_by}, {&value});
  tape.run(OpKind::scatter_source, {&value, &at}, {&rows});
}

// In place in the saved probabilities; the engine then casts it to the logits' dtype.
void cross_entropy_backward(Node& node, const Gradients& in, Gradients& out) {
  Tape& tape = *node.tape;
  out[0] = tape.unpack(node, 0);
  const Tensor others = tape.unpack(node, 1), places = tape.unpack(node, 2);
  subtract_one_hot(out[0], others, places);
  const Tensor gradient = beside(in[0]);
  tape.run(OpKind::mul_inplace, {&out[0], &gradient}, {&out[0]});
}

// fused_cross_entropy.py, calculate_gradients, as torch.compile has it: what is written at single places (index_put)
// goes to a copy of the probabilities, and the product that follows leaves in the logits' dtype.
void fused_cross_entropy_backward(Node& node, const Gradients& in, Gradients& out) {
  Tape& tape = *node.tape;
  const Tensor saved = tape.unpack(node, 0), others = tape.unpack(node, 1), places = tape.unpack(node, 2);
  const Tensor copy = made(OpKind::clone, saved, saved.shape(), saved.dtype());
  subtract_one_hot(copy, others, places);
  const Tensor gradient = beside(in[0]);
  out[0] = tape.empty(OpKind::mul, saved.shape(), node.input_dtype);
  tape.run(OpKind::mul, {&copy, &gradient}, {&out[0]});
}

}  // namespace

Tensor vocab_parallel_rows(const Tensor& weight, const Tensor& tokens, TensorSeat seat) {
  if (seat.ranks == 1) return embedding(weight, tokens);
  const OwnRows own = own_rows(as_row(tokens), seat, weight.dim(0).size);
  const Tensor rows = embedding(weight, view(own.places, tokens.shape()));
  return masked_fill_inplace(rows, view(own.others, {tokens.dim(0), tokens.dim(1), kOne}), 0);
}

namespace {

// calculate_predicted_logits: of this rank's targets.
Tensor predicted_logits(const Tensor& logits, const OwnRows& own) {
  Tape& tape = logits.tape();
  const Tensor rows = matrix(logits), places = as_column(own.places);
  const Tensor numbers = arange(tape, rows.dim(0));
  Tensor predicted = tape.empty(OpKind::index_rows, {rows.dim(0), kOne}, logits.dtype());
  tape.run(OpKind::gather, {&rows, &places}, {&predicted});
  predicted = clone(predicted);
  masked_fill_inplace(predicted, as_column(own.others), 0);
  return predicted;
}

Tensor cross_entropy_of_ranks(const Tensor& exp_logits, const Tensor& labels, TensorSeat seat, OwnRows& own) {
  Tape& tape = exp_logits.tape();
  const Tensor rows = matrix(exp_logits);
  const Tape::Among ranks(tape, RankGroup::tensor);
  {
    const Tensor largest = max_last(rows).values;
    all_reduce(largest, ReduceOp::largest);
    tape.run(OpKind::sub, {&rows, &largest}, {&rows});
    own = own_rows(as_row(labels), seat, exp_logits.dim(-1).size);
  }
  const Tensor predicted = predicted_logits(exp_logits, own);
  tape.run(OpKind::exp, {&rows}, {&rows});
  const Tensor sums = sum_to(rows, {rows.dim(0), kOne});
  all_reduce(predicted, ReduceOp::sum);
  all_reduce(sums, ReduceOp::sum);
  Tensor loss = tape.empty(OpKind::sub, rows_of(exp_logits.shape()), exp_logits.dtype());
  {
    const Tensor logarithm = log(sums), losses = as_column(loss);
    tape.run(OpKind::sub, {&logarithm, &predicted}, {&losses});
  }
  tape.run(OpKind::div_inplace, {&rows, &sums}, {&rows});
  return loss;
}

}  // namespace

Tensor vocab_parallel_cross_entropy(const Tensor& logits, const Tensor& labels, TensorSeat seat, bool fused) {
  Tape& tape = logits.tape();
  Node* node = tape.node(fused ? fused_cross_entropy_backward : cross_entropy_backward, {&logits});
  Tensor loss;
  {
    const Tape::NoGrad no_grad(tape);
    const Tensor exp_logits = tape.empty(OpKind::to_copy, logits.shape(), DType::f32);
    tape.run(OpKind::to_copy, {&logits}, {&exp_logits});
    OwnRows own;
    loss = cross_entropy_of_ranks(exp_logits, labels, seat, own);
    for (const Tensor& saved : {exp_logits, own.others, own.places})
      tape.save(node, saved);
  }
  tape.attach(node, loss);
  return loss;
}

}  // namespace ledger::megatron
