// fused_linear_loss.cc - Liger-Kernel's fused linear cross-entropy (August 2026), names and lifetimes as in its Python.

#include <algorithm>
#include <bit>

#include "core/models/causal_lm_loss.h"

namespace ledger {
namespace {

// As many rows as keep a chunk of logits near the size of the hidden states.
std::uint64_t chunk_rows(std::uint64_t tokens, std::uint64_t hidden_size, std::uint64_t vocab_size) {
  return std::bit_ceil(divide_up(tokens, divide_up(vocab_size, hidden_size)));
}

// element_mul_kernel scales what forward made by the gradient of the loss, in place.
void fused_linear_backward(Node& node, const Gradients& in, Gradients& out) {
  std::size_t next = 0;
  for (std::size_t edge = 0; edge < 2; ++edge) {
    if (!node.needs(edge)) continue;
    out[edge] = node.tape->unpack(node, next++);
    mul_inplace(out[edge], in[0]);
  }
}

struct Buffers {
  Tensor grad_input, grad_weight, loss_1d, target_mask;
};

Buffers make_buffers(const Tensor& input, const Tensor& weight, const Tensor& target) {
  Tape& tape = input.tape();
  Buffers buffers;
  {
    const Tape::In in(tape, Category::activation_gradients);
    buffers.grad_input = zeros(tape, input.shape(), input.dtype());
  }
  if (weight.requires_grad()) {
    const Tape::In in(tape, Category::gradients);
    buffers.grad_weight = zeros(tape, weight.shape(), weight.dtype());
  }
  buffers.loss_1d = zeros(tape, {input.dim(0)}, DType::f32);
  buffers.target_mask = not_equal(target, kIgnoreIndex);
  count_true(buffers.target_mask);  // .item()
  return buffers;
}

// a @ b under autocast: casts from left to right, which C++ leaves open between a call's arguments.
Tensor product(const Tensor& a, const Tensor& b) {
  const Tensor left = a.tape().autocast_low(a), right = a.tape().autocast_low(b);
  return mm(left, right);
}

// Names of the loop's that hold what they are bound to until the next chunk's.
struct ChunkNames {
  Tensor grad_logits_t, cast;
};

using Add = void (*)(const Tensor& grad_weight, const Tensor& grad_logits, const Tensor& input_chunk,
                     ChunkNames& names);

// grad_weight += grad_logits^T input. From torch 2.8 on and for fp32 gradients of 16-bit products in one call, with the
// input in the product's dtype, else through an fp32 copy of the chunk's whole [V, h] product.
void add_to_grad_weight(const Tensor& grad_weight, const Tensor& grad_logits, const Tensor& input_chunk,
                        ChunkNames& names) {
  names.grad_logits_t = transpose(grad_logits, 0, 1);
  names.cast.reset();
  const bool low = grad_logits.dtype() == DType::bf16 || grad_logits.dtype() == DType::f16;
  if (grad_weight.dtype() == DType::f32 && low) {
    names.cast = to(input_chunk, grad_logits.dtype());
    grad_weight.tape().run(OpKind::addmm, {&grad_weight, &names.grad_logits_t, &names.cast}, {&grad_weight});
    return;
  }
  add_inplace(grad_weight, to(product(names.grad_logits_t, input_chunk), DType::f32));
}

// The same up to Liger 0.6.1: one call that adds in place. Under autocast, of whose lists `out=` is not, the chunk's
// gradient is cast to the input's dtype.
void add_in_one_call(const Tensor& grad_weight, const Tensor& grad_logits, const Tensor& input_chunk, ChunkNames&) {
  const Tensor cast = to(transpose(grad_logits, 0, 1), input_chunk.dtype());
  cast.tape().run(OpKind::addmm, {&grad_weight, &cast, &input_chunk}, {&grad_weight});
}

// fused_linear_cross_entropy_forward. Names hold the previous chunk's tensors until they are bound again.
Tensor forward_in_chunks(const Tensor& input, const Tensor& weight, const Tensor& target, const Buffers& buffers,
                         Add add) {
  Tape& tape = input.tape();
  const std::uint64_t total = input.dim(0).size;
  const std::uint64_t rows = chunk_rows(total, input.dim(1).size, weight.dim(0).size);
  Tensor logits_chunk, grad_logits_chunk;
  ChunkNames names;
  for (std::uint64_t start = 0; start < total; start += rows) {
    const Dim n{std::min(rows, total - start), Sym::none};
    const Tensor input_chunk = slice(input, 0, start, n);
    logits_chunk = product(input_chunk, transpose(weight, 0, 1));
    const Tensor target_chunk = slice(target, 0, start, n);
    const Tensor loss_1d_slice = slice(buffers.loss_1d, 0, start, n);
    tape.run(OpKind::liger_cross_entropy, {&logits_chunk, &target_chunk, &target}, {&logits_chunk, &loss_1d_slice});
    grad_logits_chunk = logits_chunk;
    copy_into(slice(buffers.grad_input, 0, start, n), product(grad_logits_chunk, weight));
    if (buffers.grad_weight) add(buffers.grad_weight, grad_logits_chunk, input_chunk, names);
  }
  return sum_to(buffers.loss_1d, Shape{});
}

Tensor apply(const Tensor& input, const Tensor& weight, const Tensor& target, Add add) {
  Tape& tape = input.tape();
  Node* node = tape.node(fused_linear_backward, {&input, &weight});
  Buffers buffers;
  Tensor loss;
  {
    const Tape::NoGrad no_grad(tape);
    buffers = make_buffers(input, weight, target);
    loss = forward_in_chunks(input, weight, target, buffers, add);
  }
  if (input.requires_grad()) tape.save_output(node, buffers.grad_input);
  if (buffers.grad_weight) tape.save_output(node, buffers.grad_weight);
  tape.attach(node, loss);
  return loss;
}

HeadLoss loss_by(Add add, const Tensor& hidden, const Tensor& weight, const Tensor& labels) {
  const Dim tokens{times(hidden.dim(0).size, hidden.dim(1).size), Sym::tokens};
  const ShiftedLabels shift = shift_left(labels);
  const Tensor rows = view(hidden, {tokens, hidden.dim(2)});
  return {apply(rows, weight, view(shift.shifted, {tokens}), add), Tensor()};
}

}  // namespace

HeadLoss fused_linear_loss(const Tensor& hidden, const Tensor& weight, const Tensor& labels) {
  return loss_by(add_to_grad_weight, hidden, weight, labels);
}

HeadLoss fused_linear_0_6_loss(const Tensor& hidden, const Tensor& weight, const Tensor& labels) {
  return loss_by(add_in_one_call, hidden, weight, labels);
}

std::uint64_t loss_chunks(Loss loss, std::uint64_t tokens, std::uint64_t hidden_size, std::uint64_t vocab_size) {
  if (loss == Loss::chunked) return divide_up(tokens, kChunkedLossRows);
  if (loss == Loss::fused_linear || loss == Loss::fused_linear_0_6)
    return divide_up(tokens, chunk_rows(tokens, hidden_size, vocab_size));
  return 1;
}

}  // namespace ledger
