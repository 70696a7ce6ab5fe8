#include "core/models/compiled.h"

namespace ledger::compiled {
namespace {

Tensor fresh(Tape& tape, const Shape& shape, DType dtype) {
  return tape.empty(OpKind::compiled, shape, dtype);
}

void swiglu_backward(Node& node, const Gradients& in, Gradients& out) {
  Tape& tape = *node.tape;
  const Tensor gate = tape.unpack(node, 0), up = tape.unpack(node, 1);
  out[0] = fresh(tape, gate.shape(), gate.dtype());
  out[1] = in[0];
  tape.run(OpKind::compiled, {&in[0], &gate, &up}, {&out[0], &out[1]});
}

void cross_entropy_backward(Node& node, const Gradients& in, Gradients& out) {
  Tape& tape = *node.tape;
  const Tensor logits = tape.unpack(node, 0), labels = tape.unpack(node, 1);
  const Tensor largest = tape.unpack(node, 2), sum = tape.unpack(node, 3);
  out[0] = fresh(tape, logits.shape(), logits.dtype());
  tape.run(OpKind::compiled, {&in[0], &logits, &labels, &largest, &sum}, {&out[0]});
}

}  // namespace

Tensor swiglu(const Tensor& gate, const Tensor& up) {
  Tape& tape = gate.tape();
  Node* node = tape.node(swiglu_backward, {&gate, &up});
  tape.save(node, gate);
  tape.save(node, up);
  Tensor result = fresh(tape, gate.shape(), gate.dtype());
  tape.run(OpKind::compiled, {&gate, &up}, {&result});
  tape.attach(node, result);
  return result;
}

Tensor cross_entropy(const Tensor& logits, const Tensor& labels) {
  Tape& tape = logits.tape();
  Node* node = tape.node(cross_entropy_backward, {&logits});
  tape.save(node, logits);
  tape.save(node, labels);
  const Shape rows{logits.dim(0), {1, Sym::none}};
  const Tensor largest = fresh(tape, rows, DType::f32);
  const Tensor sum = fresh(tape, rows, DType::f32);
  Tensor loss = fresh(tape, Shape{}, DType::f32);
  tape.run(OpKind::compiled, {&logits, &labels}, {&largest, &sum, &loss});
  tape.save(node, largest);
  tape.save(node, sum);
  tape.attach(node, loss);
  return loss;
}

}  // namespace ledger::compiled
