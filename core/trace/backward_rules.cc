// backward_rules.cc - derivatives.yaml, formula by formula. C++ temporaries die where PyTorch's do, at the end of the
// full expression, so a formula written the same way has the same peak.
//
// Sources: tools/autograd/derivatives.yaml and torch/csrc/autograd/FunctionsManual.cpp (PyTorch 2.6; unchanged in 2.14
// for these operators).

#include "core/trace/backward_rules.h"

#include "core/trace/operators.h"
#include "core/trace/strides.h"

namespace ledger::backward {

void view(Node& node, const Gradients& in, Gradients& out) {
  out[0] = reshape(in[0], node.input_shape);
}

void transpose(Node& node, const Gradients& in, Gradients& out) {
  out[0] = ledger::transpose(in[0], static_cast<int>(node.attr.i[0]), static_cast<int>(node.attr.i[1]));
}

// slice_backward: a zero tensor of the whole input with the gradient copied into its place.
void slice(Node& node, const Gradients& in, Gradients& out) {
  const Tensor whole = zeros(*node.tape, node.input_shape, in[0].dtype());
  const auto dim = static_cast<int>(node.attr.i[0]);
  copy_into(ledger::slice(whole, dim, static_cast<std::uint64_t>(node.attr.i[1]), in[0].dim(dim)), in[0]);
  out[0] = whole;
}

void every_other(Node& node, const Gradients& in, Gradients& out) {
  const Tensor whole = zeros(*node.tape, node.input_shape, in[0].dtype());
  copy_into(ledger::every_other(whole, static_cast<std::uint64_t>(node.attr.i[0]), in[0].dim(-1)), in[0]);
  out[0] = whole;
}

void pass(Node&, const Gradients& in, Gradients& out) {
  out[0] = in[0];
}

void add(Node& node, const Gradients& in, Gradients& out) {
  if (node.needs(0)) out[0] = in[0];
  if (node.needs(1)) out[1] = in[0];
}

// Saved: self if other needs a gradient, then other if self does.
void mul(Node& node, const Gradients& in, Gradients& out) {
  std::size_t next = 0;
  const Tensor self = node.needs(1) ? node.tape->unpack(node, next++) : Tensor();
  const Tensor other = node.needs(0) ? node.tape->unpack(node, next++) : Tensor();
  if (node.needs(0)) out[0] = in[0] * other;
  if (node.needs(1)) out[1] = in[0] * self;
}

// Saved: self if other needs a gradient, other always.
void div(Node& node, const Gradients& in, Gradients& out) {
  std::size_t next = 0;
  const Tensor self = node.needs(1) ? node.tape->unpack(node, next++) : Tensor();
  const Tensor other = node.tape->unpack(node, next++);
  if (node.needs(0)) out[0] = ledger::div(in[0], other);
  if (node.needs(1)) {
    const Tensor quotient = ledger::div(ledger::div(self, other), other);
    out[1] = ledger::neg(in[0]) * quotient;
  }
}

void sub(Node& node, const Gradients& in, Gradients& out) {
  if (node.needs(0)) out[0] = in[0];
  if (node.needs(1)) out[1] = ledger::neg(in[0]);
}

void mul_scalar(Node& node, const Gradients& in, Gradients& out) {
  out[0] = in[0] * node.attr.x;
}

void div_scalar(Node& node, const Gradients& in, Gradients& out) {
  out[0] = in[0] / node.attr.x;
}

void neg(Node&, const Gradients& in, Gradients& out) {
  out[0] = ledger::neg(in[0]);
}

void pow_scalar(Node& node, const Gradients& in, Gradients& out) {
  const Tensor self = node.tape->unpack(node, 0);
  const double exponent = node.attr.x;
  out[0] = in[0] * (exponent * pow(self, exponent - 1));
}

void rsqrt(Node& node, const Gradients& in, Gradients& out) {
  const Tensor result = node.tape->unpack(node, 0);
  const Tensor scaled = -0.5 * in[0];
  out[0] = scaled * pow(result, 3);
}

void silu(Node& node, const Gradients& in, Gradients& out) {
  const Tensor self = node.tape->unpack(node, 0);
  out[0] = silu_backward(in[0], self);
}

void to_copy(Node& node, const Gradients& in, Gradients& out) {
  out[0] = to(in[0], node.input_dtype);
}

// mean_backward: sum_backward (an expanded view) divided by the number of elements that were averaged.
void mean(Node& node, const Gradients& in, Gradients& out) {
  out[0] = expand(in[0], node.input_shape) / node.attr.x;
}

// Saved nothing; attr: dimension and size of the first part.
void cat(Node& node, const Gradients& in, Gradients& out) {
  const auto dim = static_cast<int>(node.attr.i[0]);
  const auto first = static_cast<std::uint64_t>(node.attr.i[1]);
  const Dim whole = in[0].dim(dim);
  if (node.needs(0)) out[0] = ledger::slice(in[0], dim, 0, node.input_shape[static_cast<std::size_t>(dim)]);
  if (node.needs(1)) {
    const Sym sym = whole.size - first == first ? node.input_shape[static_cast<std::size_t>(dim)].sym : Sym::none;
    out[1] = ledger::slice(in[0], dim, first, {whole.size - first, sym});
  }
}

// split_backward: the parts' gradients joined, zeros where a part had none.
void split(Node& node, const Gradients& in, Gradients& out) {
  const auto dim = static_cast<int>(node.attr.i[0]);
  const auto count = static_cast<std::size_t>(node.attr.i[1]);
  std::array<Tensor, kMaxOutputs> parts;
  for (std::size_t i = 0; i < count; ++i)
    parts[i] = in[i] ? in[i] : zeros(*node.tape, node.outputs[i].shape, node.outputs[i].dtype);
  out[0] =
      ledger::cat(std::span<const Tensor>(parts.data(), count), dim, node.input_shape[static_cast<std::size_t>(dim)]);
}

namespace {

// mm_mat1_backward and mm_mat2_backward: the gradient takes the memory order of what it belongs to, so the gradient of
// a transposed weight is the transpose of a fresh contiguous [out, in].
void matrix_gradients(Node& node, const Tensor& gradient, std::size_t first, std::size_t next_saved, Gradients& out) {
  const Tensor a = node.needs(first + 1) ? node.tape->unpack(node, next_saved++) : Tensor();
  const Tensor b = node.needs(first) ? node.tape->unpack(node, next_saved++) : Tensor();
  if (node.needs(first)) out[first] = ledger::mm(gradient, ledger::transpose(b, 0, 1));
  if (node.needs(first + 1)) {
    const bool transposed = node.attr.i[0] != 0;
    out[first + 1] = transposed ? ledger::transpose(ledger::mm(ledger::transpose(gradient, 0, 1), a), 0, 1)
                                : ledger::mm(ledger::transpose(a, 0, 1), gradient);
  }
}

}  // namespace

void mm(Node& node, const Gradients& in, Gradients& out) {
  matrix_gradients(node, in[0], 0, 0, out);
}

void addmm(Node& node, const Gradients& in, Gradients& out) {
  if (node.needs(0)) out[0] = in[0];  // summed over the rows by the engine's validation
  matrix_gradients(node, in[0], 1, 0, out);
}

// bmm: self: grad.bmm(mat2.transpose(1, 2)); mat2: self.transpose(1, 2).bmm(grad).
void bmm(Node& node, const Gradients& in, Gradients& out) {
  std::size_t next = 0;
  const Tensor self = node.needs(1) ? node.tape->unpack(node, next++) : Tensor();
  const Tensor mat2 = node.needs(0) ? node.tape->unpack(node, next++) : Tensor();
  if (node.needs(0)) out[0] = ledger::bmm(in[0], ledger::transpose(mat2, 1, 2));
  if (node.needs(1)) out[1] = ledger::bmm(ledger::transpose(self, 1, 2), in[0]);
}

// baddbmm: maybe_multiply(the same, alpha).
void baddbmm(Node& node, const Gradients& in, Gradients& out) {
  bmm(node, in, out);
  const double alpha = node.attr.x;
  for (std::size_t i = 0; i < 2 && alpha != 1; ++i) {
    if (out[i]) out[i] = out[i] * alpha;
  }
}

void softmax(Node& node, const Gradients& in, Gradients& out) {
  const Tensor result = node.tape->unpack(node, 0);
  Tensor gradient = node.tape->empty(OpKind::softmax_backward, node.input_shape, node.input_dtype);
  node.tape->run(OpKind::softmax_backward, {&in[0], &result}, {&gradient});
  out[0] = gradient;
}

void dropout(Node& node, const Gradients& in, Gradients& out) {
  const Tensor mask = node.tape->unpack(node, 0);
  Tensor gradient = node.tape->empty(OpKind::dropout_backward, in[0].shape(), in[0].dtype());
  node.tape->run(OpKind::dropout_backward, {&in[0], &mask}, {&gradient}, node.attr);
  out[0] = gradient;
}

void hooked(Node& node, const Gradients& in, Gradients& out) {
  node.tape->call_hook(static_cast<std::size_t>(node.attr.i[0]));
  out[0] = in[0];
}

void offloaded(Node& node, const Gradients& in, Gradients& out) {
  Tensor input;
  {
    const Tape::In activations(*node.tape, Category::activations);
    input = node.tape->empty(OpKind::copy_from_host, node.input_shape, node.input_dtype);
  }
  node.tape->run(OpKind::copy_from_host, {}, {&input}, node.attr);
  out[0] = node.tape->rerun(*node.frame, input, in[0]);
}

void reentrant(Node& node, const Gradients& in, Gradients& out) {
  const Tensor input = node.tape->unpack(node, 0);
  out[0] = node.tape->rerun(*node.frame, input, in[0]);
}

// embedding_dense_backward: a zero-filled gradient of the whole table.
void embedding(Node& node, const Gradients& in, Gradients& out) {
  const Tensor ids = node.tape->unpack(node, 0);
  const Tensor gradient = contiguous(in[0]);
  Tensor table = node.tape->empty(OpKind::embedding_backward, node.input_shape, in[0].dtype());
  node.tape->run(OpKind::embedding_backward, {&gradient, &ids}, {&table});
  out[0] = table;
}

void log_softmax(Node& node, const Gradients& in, Gradients& out) {
  const Tensor result = node.tape->unpack(node, 0);
  Tensor gradient = node.tape->empty(OpKind::log_softmax_backward, node.input_shape, node.input_dtype);
  node.tape->run(OpKind::log_softmax_backward, {&in[0], &result}, {&gradient});
  out[0] = gradient;
}

// Saved: log-probabilities (only their shape matters), targets, total_weight.
void nll_loss(Node& node, const Gradients& in, Gradients& out) {
  const Tensor log_probabilities = node.tape->unpack(node, 0);
  const Tensor targets = node.tape->unpack(node, 1);
  const Tensor total_weight = node.tape->unpack(node, 2);
  Tensor gradient = node.tape->empty(OpKind::nll_loss_backward, node.input_shape, node.input_dtype);
  node.tape->run(OpKind::nll_loss_backward, {&in[0], &targets, &total_weight}, {&gradient}, node.attr);
  out[0] = gradient;
}

// index_backward: zeros of the whole input, then index_put with accumulate, in place for plain tensors alone.
void index_rows(Node& node, const Gradients& in, Gradients& out) {
  const Tensor order = node.tape->unpack(node, 0);
  Tensor zero;
  if (!node.tape->plain_tensors()) zero = zeros(*node.tape, node.input_shape, in[0].dtype());
  Tensor gradient = node.tape->empty(OpKind::index_rows_backward, node.input_shape, in[0].dtype());
  node.tape->run(OpKind::index_rows_backward, {&in[0], &order}, {&gradient});
  out[0] = gradient;
}

void never(Node&, const Gradients&, Gradients&) {}

namespace {

using FusedScratch = std::array<Tensor, 4>;

// Scratch as flash_api.cpp mha_bwd takes it: softmax_d and dq_accum in fp32, and for grouped heads dk and dv at all
// query heads before they are summed into the key/value heads.
FusedScratch flash_scratch(Tape& tape, const Tensor& q, const Tensor& k) {
  const Dim b = q.dim(0), nh = q.dim(1), s = q.dim(2), d = q.dim(3);
  const Dim padded_s{round_up(s.size, 128), s.size % 128 == 0 ? s.sym : Sym::none};
  const Dim padded_d{round_up(d.size, 32), d.size % 32 == 0 ? d.sym : Sym::none};
  FusedScratch held;
  held[0] = tape.scratch({b, nh, padded_s}, DType::f32);
  held[1] = tape.scratch({b, padded_s, nh, padded_d}, DType::f32);
  if (k.dim(1).size != nh.size) {
    held[2] = tape.scratch({b, k.dim(2), nh, d}, q.dtype());
    held[3] = tape.scratch({b, k.dim(2), nh, d}, q.dtype());
  }
  return held;
}

}  // namespace

// Scratch lives for the call, and the kernel is given the first two of it.
void attention_gradients(OpKind op, const AttentionOperands& of, Gradients& out, Attr attr) {
  const Tensor& q = *of[1];
  Tape& tape = q.tape();
  for (std::size_t i = 0; i < 3; ++i) {
    const Tensor& operand = *of[i + 1];
    const auto strides = elementwise_strides(operand.shape(), operand);  // empty_like
    out[i] = tape.empty(op, operand.shape(), operand.dtype(), strides ? &*strides : nullptr);
  }
  const FusedScratch held =
      op == OpKind::flash_attention_backward ? flash_scratch(tape, q, *of[2]) : FusedScratch{tape.cudnn_scratch()};
  const std::array<const Tensor*, 5> outputs{&out[0], &out[1], &out[2], &held[0], &held[1]};
  tape.run(op, of, std::span(outputs).first(held[1] ? 5 : held[0] ? 4 : 3), attr);
}

namespace {

void fused_attention(OpKind op, Node& node, const Gradients& in, Gradients& out) {
  std::array<Tensor, 7> saved;
  for (std::size_t i = 0; i < saved.size(); ++i)
    saved[i] = node.tape->unpack(node, i);
  const Tensor gradient = contiguous(ledger::transpose(in[0], 1, 2)), heads = ledger::transpose(gradient, 1, 2);
  attention_gradients(op, {&heads, &saved[0], &saved[1], &saved[2], &saved[3], &saved[4]}, out, node.attr);
}

}  // namespace

void flash_attention(Node& node, const Gradients& in, Gradients& out) {
  fused_attention(OpKind::flash_attention_backward, node, in, out);
}

void cudnn_attention(Node& node, const Gradients& in, Gradients& out) {
  fused_attention(OpKind::cudnn_attention_backward, node, in, out);
}

// attention_backward.cu: delta in fp32. With fp32 gradients, the case sdpa sends here, the kernel accumulates into
// them; the fp32 accumulator that 16-bit gradients need is not modelled (docs/not-modelled.md, kernel_launch_scratch).
void efficient_attention(Node& node, const Gradients& in, Gradients& out) {
  Tape& tape = *node.tape;
  const std::size_t bias = node.saved_count == kMaxSaved ? 1 : 0;  // saved after v
  std::array<Tensor, 6> saved;
  for (std::size_t i = 0; i < 5 + bias; ++i)
    saved[i] = tape.unpack(node, i);
  const Dim b = saved[0].dim(0), nh = saved[0].dim(1), s = saved[0].dim(2);
  for (std::size_t i = 0; i < 3; ++i) {
    const Shape shape{b, s, nh, saved[i].dim(3)};
    out[i] = ledger::transpose(tape.empty(OpKind::efficient_attention_backward, shape, saved[i].dtype()), 1, 2);
  }
  const Tensor delta = tape.scratch({b, nh, s}, DType::f32);
  const std::array<const Tensor*, 7> inputs = {&in[0],           &saved[0],        &saved[1], &saved[2],
                                               &saved[3 + bias], &saved[4 + bias], &saved[3]};
  const std::array<const Tensor*, 3> outputs = {&out[0], &out[1], &out[2]};
  tape.run(OpKind::efficient_attention_backward, std::span(inputs).first(6 + bias), outputs, node.attr);
}

}  // namespace ledger::backward
