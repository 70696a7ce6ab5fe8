#include "core/models/dtensor.h"

namespace ledger::dtensor {
namespace {

Tensor fresh(Tape& tape, OpKind op, const Shape& shape, DType dtype) {
  Tensor result = tape.empty(op, shape, dtype);
  tape.run(op, {}, {&result});
  return result;
}

// [b, s, h] as a collective sees it: one rank's part after the other along the first dimension.
Shape stacked(const Shape& whole, Dim part) {
  Shape shape = whole;
  shape.set(0, {times(whole[0].size, whole[1].size / part.size), Sym::none});
  shape.set(1, part);
  return shape;
}

Tensor gathered(const Tensor& x, Dim whole) {
  Tape& tape = x.tape();
  Shape shape = x.shape();
  shape.set(1, whole);
  Tensor parts;
  {
    const Tape::In in(tape, Category::communication);
    parts = fresh(tape, OpKind::all_gather, stacked(shape, x.dim(1)), x.dtype());
  }
  return fresh(tape, OpKind::cat, shape, x.dtype());
}

Tensor scattered(const Tensor& x, Dim part) {
  Tape& tape = x.tape();
  Tensor parts;
  {
    const Tape::In in(tape, Category::communication);
    parts = fresh(tape, OpKind::cat, stacked(x.shape(), part), x.dtype());
  }
  Shape shape = x.shape();
  shape.set(1, part);
  return fresh(tape, OpKind::reduce_scatter, shape, x.dtype());
}

void gather_rule(Node& node, const Gradients& in, Gradients& out) {
  out[0] = scattered(in[0], node.input_shape[1]);
}

void scatter_rule(Node& node, const Gradients& in, Gradients& out) {
  out[0] = gathered(in[0], node.input_shape[1]);
}

// _nll_loss_and_log_softmax_backward: (one-hot + e^x) times the gradient, each step a tensor. The log-softmax's own
// backward pass hands it on.
void cross_entropy_rule(Node& node, const Gradients&, Gradients& out) {
  Tape& tape = *node.tape;
  const Tensor x = tape.unpack(node, 0);
  const Tensor one_hot = fresh(tape, OpKind::zeros_like, x.shape(), x.dtype());
  Tensor sum;
  {
    const Tensor exponentials = fresh(tape, OpKind::softmax, x.shape(), x.dtype());
    sum = fresh(tape, OpKind::add, x.shape(), x.dtype());
  }
  out[0] = fresh(tape, OpKind::mul, x.shape(), x.dtype());
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

// _log_softmax: shifted by the largest of all ranks, less the logarithm of the sum of all; then _nll_loss_forward.
Tensor cross_entropy(const Tensor& logits, const Tensor& labels) {
  Tape& tape = logits.tape();
  Node* node = tape.node(cross_entropy_rule, {&logits});
  const Shape rows{logits.dim(0), kOne};
  Tensor result;
  {
    const Tensor largest = fresh(tape, OpKind::all_reduce, rows, logits.dtype());
    const Tensor shifted = fresh(tape, OpKind::sub, logits.shape(), logits.dtype());
    Tensor sums;
    {
      const Tensor exponentials = fresh(tape, OpKind::softmax, logits.shape(), logits.dtype());
      sums = fresh(tape, OpKind::sum, rows, logits.dtype());
    }
    result = fresh(tape, OpKind::log_softmax, logits.shape(), logits.dtype());
  }
  tape.save(node, result);
  tape.save(node, labels);
  Tensor loss = fresh(tape, OpKind::nll_loss, Shape{}, logits.dtype());
  tape.attach(node, loss);
  return loss;
}

}  // namespace ledger::dtensor
