#include "core/models/megatron_ops.h"

namespace ledger::megatron {
namespace {

// What a rule has to know of Sharing, in a node's attributes.
void remember(Node* node, Sharing sharing) {
  if (node == nullptr) return;
  node->attr.i = {static_cast<std::int64_t>(sharing.tp), sharing.sequence ? 1 : 0};
  node->attr.x = sharing.fused_gradients ? 1 : 0;
}

Tensor fresh(Tape& tape, OpKind op, const Shape& shape, DType dtype) {
  Tensor result = tape.empty(op, shape, dtype);
  tape.run(op, {}, {&result});
  return result;
}

// All tokens, where a rank holds one of `tp` parts of them.
Shape gathered_shape(const Shape& shape, std::uint64_t tp) {
  Shape whole = shape;
  whole.set(0, {times(shape[0].size, tp), Sym::s});
  return whole;
}

Shape scattered_shape(const Shape& shape, std::uint64_t tp) {
  Shape part = shape;
  part.set(0, {shape[0].size / tp, Sym::none});
  return part;
}

Shape rows_of(const Shape& shape) {
  return {shape[0], shape[1]};
}

Tensor weight_gradient(const Node& node, const Tensor& weight) {
  if (node.attr.x != 0) return Tensor();
  return fresh(*node.tape, OpKind::mm, weight.shape(), weight.dtype());
}

struct Back {
  Tape& tape;
  std::uint64_t tp;
  bool sequence;
  explicit Back(const Node& node)
      : tape(*node.tape), tp(static_cast<std::uint64_t>(node.attr.i[0])), sequence(node.attr.i[1] != 0) {}
};

enum NormSaved : std::size_t { kX, kNorm, kRstd, kMean, kOut, kWeight };

// The normed tokens are gathered again for the weight's gradient; that of the input is added up over the ranks, or
// scattered.
void norm_linear_backward(Node& node, const Gradients& in, Gradients& out) {
  const Back back(node);
  Tape& tape = back.tape;
  const Tensor x = tape.unpack(node, kX), norm = tape.unpack(node, kNorm);
  const Tensor rstd = tape.unpack(node, kRstd), mean = tape.unpack(node, kMean);
  Tensor dgrad = in[0];
  if (node.saved_count > kOut) {
    const Tensor ln_out = tape.unpack(node, kOut), weight = tape.unpack(node, kWeight);
    Tensor total = ln_out;
    if (back.sequence) total = fresh(tape, OpKind::all_gather, gathered_shape(ln_out.shape(), back.tp), ln_out.dtype());
    dgrad = fresh(tape, OpKind::mm, total.shape(), x.dtype());
    Tensor scattered;
    if (back.sequence) scattered = fresh(tape, OpKind::reduce_scatter, ln_out.shape(), x.dtype());
    if (!back.sequence && back.tp > 1) all_reduce(dgrad, ReduceOp::sum);
    out[2] = weight_gradient(node, weight);
    total.reset();
    if (scattered) dgrad = std::move(scattered);
    if (node.needs(3)) out[3] = fresh(tape, OpKind::sum, {in[0].shape().last()}, x.dtype());
  }
  out[0] = fresh(tape, OpKind::layer_norm_backward, x.shape(), x.dtype());
  out[1] = fresh(tape, OpKind::layer_norm_backward, norm.shape(), norm.dtype());
}

void row_linear_backward(Node& node, const Gradients& in, Gradients& out) {
  const Back back(node);
  Tape& tape = back.tape;
  const Tensor x = tape.unpack(node, 0), weight = tape.unpack(node, 1);
  Tensor gradient = in[0];
  if (back.sequence)
    gradient = fresh(tape, OpKind::all_gather, gathered_shape(gradient.shape(), back.tp), gradient.dtype());
  out[0] = fresh(tape, OpKind::mm, x.shape(), x.dtype());
  out[1] = weight_gradient(node, weight);
}

void column_linear_backward(Node& node, const Gradients& in, Gradients& out) {
  const Back back(node);
  Tape& tape = back.tape;
  const Tensor x = tape.unpack(node, 0), weight = tape.unpack(node, 1);
  const Shape whole = back.sequence ? gathered_shape(x.shape(), back.tp) : x.shape();
  tape.ensure_cublas_workspace();
  Tensor dgrad = fresh(tape, OpKind::mm, whole, in[0].dtype());
  if (back.sequence) {
    Tensor scattered = fresh(tape, OpKind::reduce_scatter, x.shape(), x.dtype());
    out[1] = weight_gradient(node, weight);
    out[0] = std::move(scattered);
    return;
  }
  if (back.tp > 1) all_reduce(dgrad, ReduceOp::sum);
  out[1] = weight_gradient(node, weight);
  out[0] = std::move(dgrad);
}

// The gradient of the bias is that of x, which the engine sums (BiasGeLUFunction.backward returns it twice).
void activation_backward(Node& node, const Gradients& in, Gradients& out) {
  Tape& tape = *node.tape;
  const Tensor x = tape.unpack(node, 0);
  const bool gated = in[0].dim(-1).size != x.dim(-1).size;
  out[0] = fresh(tape, gated ? OpKind::silu_backward : OpKind::gelu_backward, x.shape(), x.dtype());
  if (node.needs(1)) out[1] = out[0];
}

void dropout_add_backward(Node& node, const Gradients& in, Gradients& out) {
  Tape& tape = *node.tape;
  out[1] = in[0];
  out[0] = in[0];
  if (node.saved_count > 0) {
    const Tensor mask = tape.unpack(node, 0);
    out[0] = fresh(tape, OpKind::dropout_backward, in[0].shape(), in[0].dtype());
  }
  if (node.needs(2)) out[2] = fresh(tape, OpKind::sum, {in[0].shape().last()}, in[0].dtype());
}

void split_backward(Node& node, const Gradients& in, Gradients& out) {
  out[0] = fresh(*node.tape, OpKind::cat, node.input_shape, in[0].dtype());
}

void rope_backward(Node& node, const Gradients& in, Gradients& out) {
  out[0] = fresh(*node.tape, OpKind::mul, in[0].shape(), in[0].dtype());
}

// In place in the saved probabilities; the engine then casts it to the logits' dtype.
void cross_entropy_backward(Node& node, const Gradients&, Gradients& out) {
  out[0] = node.tape->unpack(node, 0);
}

void receive_gradient(Node& node, const Gradients&, Gradients& out) {
  const Tape::In in(*node.tape, Category::communication);
  out[0] = fresh(*node.tape, OpKind::all_gather, node.input_shape, DType::bf16);
}

void gather_sequence(Node& node, const Gradients& in, Gradients& out) {
  out[0] = fresh(*node.tape, OpKind::all_gather, node.input_shape, in[0].dtype());
}

}  // namespace

Tensor norm_linear(const Tensor& x, const Tensor& norm, const Tensor& weight, const Tensor& bias, Sharing sharing) {
  Tape& tape = x.tape();
  Node* node = tape.node(norm_linear_backward, {&x, &norm, &weight, &bias});
  remember(node, sharing);
  tape.save(node, x);
  tape.save(node, norm);
  Tensor ln_out = tape.empty(OpKind::layer_norm, x.shape(), x.dtype());
  const Tensor rstd = tape.empty(OpKind::layer_norm, rows_of(x.shape()), DType::f32);
  // RMSNorm has no mean.
  const bool centred = norm.dim(0).size == 2;
  const Tensor mean = centred ? tape.empty(OpKind::layer_norm, rows_of(x.shape()), DType::f32) : rstd;
  tape.run(OpKind::layer_norm, {&x, &norm}, {&ln_out, &mean, &rstd});
  tape.save(node, rstd);
  tape.save(node, mean);
  if (!weight) {
    tape.attach(node, ln_out);
    return ln_out;
  }
  tape.save(node, ln_out);
  tape.save(node, weight);
  Tensor total = ln_out;
  if (sharing.sequence)
    total = fresh(tape, OpKind::all_gather, gathered_shape(ln_out.shape(), sharing.tp), ln_out.dtype());
  Shape shape = total.shape();
  shape.set_last(weight.dim(0));
  Tensor result = tape.empty(OpKind::mm, shape, x.dtype());
  tape.run(OpKind::mm, {&total, &weight}, {&result});
  tape.attach(node, result);
  return result;
}

Tensor row_linear(const Tensor& x, const Tensor& weight, Sharing sharing) {
  Tape& tape = x.tape();
  Node* node = tape.node(row_linear_backward, {&x, &weight});
  remember(node, sharing);
  tape.save(node, x);
  tape.save(node, weight);
  Shape shape = x.shape();
  shape.set_last(weight.dim(0));
  Tensor result = tape.empty(OpKind::mm, shape, x.dtype());
  tape.run(OpKind::mm, {&x, &weight}, {&result});
  if (sharing.sequence) {
    result = fresh(tape, OpKind::reduce_scatter, scattered_shape(shape, sharing.tp), x.dtype());
  } else if (sharing.tp > 1) {
    all_reduce(result, ReduceOp::sum);
  }
  tape.attach(node, result);
  return result;
}

Tensor column_linear(const Tensor& x, const Tensor& weight, const Tensor& gathered, Sharing sharing) {
  Tape& tape = x.tape();
  Node* node = tape.node(column_linear_backward, {&x, &weight});
  remember(node, sharing);
  tape.save(node, x);
  tape.save(node, weight);
  const Tensor& total = gathered ? gathered : x;
  Shape shape = total.shape();
  shape.set_last(weight.dim(0));
  tape.ensure_cublas_workspace();
  Tensor result = tape.empty(OpKind::mm, shape, x.dtype());
  tape.run(OpKind::mm, {&total, &weight}, {&result});
  tape.attach(node, result);
  return result;
}

Tensor bias_activation(const Tensor& x, const Tensor& bias, bool gated) {
  Tape& tape = x.tape();
  Node* node = tape.node(activation_backward, {&x, &bias});
  tape.save(node, x);
  Shape shape = x.shape();
  if (gated) shape.set_last({x.dim(-1).size / 2, Sym::none});
  const OpKind op = gated ? OpKind::silu : OpKind::gelu;
  Tensor result = tape.empty(op, shape, x.dtype());
  tape.run(op, {&x}, {&result});
  tape.attach(node, result);
  return result;
}

Tensor bias_dropout_add(const Tensor& x, const Tensor& bias, const Tensor& residual, double p) {
  Tape& tape = x.tape();
  Node* node = tape.node(dropout_add_backward, {&x, &residual, &bias});
  Tensor result = tape.empty(OpKind::add, residual.shape(), residual.dtype());
  if (p > 0) tape.save(node, fresh(tape, OpKind::dropout, x.shape(), DType::boolean));
  tape.run(OpKind::add, {&x, &residual}, {&result});
  tape.attach(node, result);
  return result;
}

Heads split_qkv(const Tensor& mixed, Dim q_width, Dim d) {
  Tape& tape = mixed.tape();
  Node* node = tape.node(split_backward, {&mixed});
  const auto part = [&](std::uint64_t offset, Dim width) {
    Shape shape = mixed.shape();
    shape.set_last(width);
    Tensor view = tape.view_of(mixed, shape, mixed.impl()->strides, offset);
    tape.attach(node, view);
    return view;
  };
  Heads heads;
  heads.q = part(0, q_width);
  heads.k = part(q_width.size, d);
  heads.v = part(plus(q_width.size, d.size), d);
  return heads;
}

Tensor fused_rope(const Tensor& x) {
  Tape& tape = x.tape();
  Node* node = tape.node(rope_backward, {&x});
  Tensor result = tape.empty(OpKind::mul, x.shape(), x.dtype());
  tape.run(OpKind::mul, {&x}, {&result});
  tape.attach(node, result);
  return result;
}

Tensor vocab_parallel_cross_entropy(const Tensor& logits, const Tensor& labels) {
  Tape& tape = logits.tape();
  const Shape rows = rows_of(logits.shape());
  Node* node = tape.node(cross_entropy_backward, {&logits});
  const Tensor exp_logits = tape.empty(OpKind::to_copy, logits.shape(), DType::f32);
  tape.run(OpKind::to_copy, {&logits}, {&exp_logits});
  Tensor maximum = fresh(tape, OpKind::sum, rows, DType::f32);
  const Tensor target_mask = fresh(tape, OpKind::not_equal, rows, DType::boolean);
  const Tensor masked_target = fresh(tape, OpKind::clone, rows, labels.dtype());
  maximum.reset();
  const Tensor predicted = fresh(tape, OpKind::index_rows, rows, DType::f32);
  const Tensor sum_exp = fresh(tape, OpKind::sum, rows, DType::f32);
  Tensor loss = fresh(tape, OpKind::sub, rows, DType::f32);
  for (const Tensor* saved : {&exp_logits, &target_mask, &masked_target})
    tape.save(node, *saved);
  tape.attach(node, loss);
  return loss;
}

Tensor send_forward(const Tensor& x) {
  Tape& tape = x.tape();
  Node* node = tape.node(receive_gradient, {&x});
  Tensor sent = fresh(tape, OpKind::full, Shape{}, DType::f32);
  tape.attach(node, sent);
  return sent;
}

Tensor scatter_to_sequence(const Tensor& x, Dim shard) {
  Tape& tape = x.tape();
  Node* node = tape.node(gather_sequence, {&x});
  Shape shape = x.shape();
  shape.set(0, shard);
  Tensor result = fresh(tape, OpKind::reduce_scatter, shape, x.dtype());
  tape.attach(node, result);
  return result;
}

}  // namespace ledger::megatron
