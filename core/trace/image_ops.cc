// image_ops.cc - what encoders of images need beside a decoder's operators: patches, pooling, and putting what they saw
// into the text.
//
// Sources: tools/autograd/derivatives.yaml (convolution, masked_scatter, avg_pool2d, unbind); torch/csrc/autograd/
// FunctionsManual.cpp (unbind_backward); aten/src/ATen/native/{Convolution.cpp, TensorAdvancedIndexing.cpp},
// aten/src/ATen/native/cudnn/ConvShared.cpp, aten/src/ATen/native/cuda/{IndexKernel.cpp, Nonzero.cu}. cuDNN's own
// workspace is not modelled (docs/not-modelled.md, cudnn_workspace).

#include "core/trace/operators.h"
#include "core/trace/strides.h"

namespace ledger {
namespace {

// Saved: input, weight. The gradient comes from a transposed view, of which cuDNN first makes a dense copy.
void convolution_rule(Node& node, const Gradients& in, Gradients& out) {
  Tape& tape = *node.tape;
  const Tensor x = tape.unpack(node, 0), weight = tape.unpack(node, 1);
  const Tensor dense = dense_copy(in[0]);
  out[0] = tape.empty(OpKind::convolution_backward, weight.shape(), weight.dtype());
  const bool biased = node.needs(1);
  if (biased) out[1] = tape.empty(OpKind::convolution_backward, {weight.dim(0)}, weight.dtype());
  const std::array<const Tensor*, 3> inputs{&in[0], &x, &weight};
  const std::array<const Tensor*, 2> outputs{&out[0], &out[1]};
  tape.run(OpKind::convolution_backward, inputs, std::span(outputs.data(), biased ? 2u : 1u));
  if (!node.needs(0)) out[0].reset();
}

// Where a mask as large as `gradient` holds, as indexing by it looks: one number a dimension of each place, and while
// they are counted the whole mask.
Tensor nonzero(const Tensor& gradient, std::uint64_t elements) {
  Tape& tape = gradient.tape();
  const Tensor whole = tape.scratch(gradient.shape(), DType::boolean);
  const auto rank = static_cast<std::uint64_t>(gradient.rank());
  return tape.scratch({{rank, Sym::none}, {elements, Sym::none}}, DType::i64);
}

// Saved: the mask. input_shape is that of the source.
void masked_scatter_rule(Node& node, const Gradients& in, Gradients& out) {
  Tape& tape = *node.tape;
  const Tensor mask = tape.unpack(node, 0);
  if (node.needs(0)) {
    out[0] = tape.empty(OpKind::masked_fill, in[0].shape(), in[0].dtype());
    tape.run(OpKind::masked_fill, {&in[0], &mask}, {&out[0]});
  }
  if (!node.needs(1)) return;
  const Tensor places = nonzero(in[0], node.input_shape.numel());
  out[1] = tape.empty(OpKind::masked_select, node.input_shape, in[0].dtype());
  tape.run(OpKind::masked_select, {&in[0], &mask}, {&out[1]});
}

// Saved: the input, which the formula names.
void avg_pool_rule(Node& node, const Gradients& in, Gradients& out) {
  const Tensor x = node.tape->unpack(node, 0);
  const Tensor dense = dense_copy(in[0]);
  out[0] = node.tape->empty(OpKind::avg_pool_backward, x.shape(), in[0].dtype());
  node.tape->run(OpKind::avg_pool_backward, {&in[0]}, {&out[0]}, node.attr);
}

// The joined list's gradient in pieces, which unbind's rule stacks.
void join_images_rule(Node& node, const Gradients& in, Gradients& out) {
  const Tensor pieces = view(in[0], node.input_shape);
  Tensor stacked = node.tape->empty(OpKind::stack, node.input_shape, in[0].dtype());
  node.tape->run(OpKind::cat, {&pieces}, {&stacked});
  out[0] = stacked;
}

// Saved: q, k, v, the result, its logsumexp, where sequences end and a random state. Scratch as flash_api.cpp
// mha_varlen_bwd takes it: softmax_d and dq_accum in fp32, each sequence with a block of 128 to spare.
void packed_attention_rule(Node& node, const Gradients& in, Gradients& out) {
  Tape& tape = *node.tape;
  std::array<Tensor, 7> saved;
  for (std::size_t i = 0; i < saved.size(); ++i)
    saved[i] = tape.unpack(node, i);
  const Tensor gradient = contiguous(transpose(in[0], 1, 2));
  for (std::size_t i = 0; i < 3; ++i) {
    const auto strides = elementwise_strides(saved[i].shape(), saved[i]);  // empty_like
    out[i] = tape.empty(OpKind::packed_attention_backward, saved[i].shape(), saved[i].dtype(),
                        strides ? &*strides : nullptr);
  }
  const Tensor& q = saved[0];
  const std::uint64_t sequences = saved[5].dim(0).size - 1;
  const Dim spread{plus(q.dim(2).size, times(128, sequences)), Sym::none};
  const Tensor softmax_d = tape.scratch({q.dim(1), spread}, DType::f32);
  const Tensor dq_accum = tape.scratch({spread, q.dim(1), {round_up(q.dim(3).size, 32), Sym::none}}, DType::f32);
  const Tensor of_heads = transpose(gradient, 1, 2);
  tape.run(OpKind::packed_attention_backward, {&of_heads, &saved[0], &saved[1], &saved[2], &saved[3], &saved[4]},
           {&out[0], &out[1], &out[2]}, node.attr);
}

}  // namespace

Tensor convolution(const Tensor& input, const Tensor& filters, const Tensor& offsets) {
  Tape& tape = input.tape();
  const Tensor x = tape.autocast_low(input), weight = tape.autocast_low(filters);
  const Tensor bias = offsets ? tape.autocast_low(offsets) : Tensor();
  Node* node = tape.node(convolution_rule, {&weight, &bias});
  tape.save(node, x);
  tape.save(node, weight);
  Shape shape{x.dim(0), weight.dim(0)};
  for (int i = 2; i < x.rank(); ++i)
    shape.push({x.dim(i).size / weight.dim(i).size, Sym::none});
  Tensor result = tape.empty(OpKind::convolution, shape, x.dtype());
  const std::array<const Tensor*, 3> inputs{&x, &weight, &bias};
  const Tensor* const output = &result;
  tape.run(OpKind::convolution, std::span(inputs.data(), bias ? 3u : 2u), {&output, 1});
  tape.attach(node, result);
  return result;
}

Tensor equal(const Tensor& a, std::int64_t value) {
  Tensor result = a.tape().empty(OpKind::equal, a.shape(), DType::boolean);
  a.tape().run(OpKind::equal, {&a}, {&result}, {0, {value, 0}});
  return result;
}

Tensor masked_scatter(const Tensor& a, const Tensor& mask, const Tensor& source) {
  Tape& tape = a.tape();
  Node* node = tape.node(masked_scatter_rule, {&a, &source});
  if (node != nullptr) node->input_shape = source.shape();
  tape.save(node, mask);
  Tensor result = tape.empty(OpKind::masked_scatter, a.shape(), a.dtype());
  {
    // Where each element comes from, counted over the whole of a mask as large as the result.
    const Tensor sums = tape.scratch(a.shape(), DType::i64);
    const Tensor whole = tape.scratch(a.shape(), DType::boolean);
    tape.run(OpKind::masked_scatter, {&a, &mask, &source}, {&result});
  }
  tape.attach(node, result);
  return result;
}

Tensor avg_pool(const Tensor& a, std::uint64_t side) {
  Tape& tape = a.tape();
  const Attr attr{0, {static_cast<std::int64_t>(side), 0}};
  Node* node = tape.node(avg_pool_rule, {&a});
  if (node != nullptr) node->attr = attr;
  tape.save(node, a);
  const Shape shape{a.dim(0), a.dim(1), {a.dim(2).size / side, Sym::none}, {a.dim(3).size / side, Sym::none}};
  Tensor result = tape.empty(OpKind::avg_pool, shape, a.dtype());
  tape.run(OpKind::avg_pool, {&a}, {&result}, attr);
  tape.attach(node, result);
  return result;
}

Tensor join_images(const Tensor& a) {
  Tape& tape = a.tape();
  Node* node = tape.node(join_images_rule, {&a});
  const Shape shape{{times(a.dim(0).size, a.dim(1).size), Sym::none}, a.dim(2)};
  const Tensor images = tape.detach(a);
  Tensor result = tape.empty(OpKind::cat, shape, a.dtype());
  const Tensor apart = tape.view_of(result, a.shape(), contiguous_strides(a.shape()), 0);
  tape.run(OpKind::cat, {&images}, {&apart});
  tape.attach(node, result);
  return result;
}

Tensor image_blocks(const Tensor& mask) {
  Tensor result = mask.tape().empty(OpKind::image_blocks, mask.shape(), DType::i64);
  mask.tape().run(OpKind::image_blocks, {&mask}, {&result});
  return result;
}

Tensor unfold(const Tensor& x, std::uint64_t side) {
  const std::uint64_t pixels = times(x.dim(1).size, times(side, side));
  const std::uint64_t places = times(x.dim(2).size / side, x.dim(3).size / side);
  Tensor result = x.tape().empty(OpKind::unfold, {x.dim(0), {pixels, Sym::none}, {places, Sym::none}}, x.dtype());
  x.tape().run(OpKind::unfold, {&x}, {&result}, {0, {static_cast<std::int64_t>(side), 0}});
  return result;
}

Tensor image_turns(Tape& tape, std::uint64_t side, const Shape& shape, double theta) {
  Tensor result = tape.empty(OpKind::image_turns, shape, DType::f32);
  tape.run(OpKind::image_turns, {}, {&result}, {theta, {static_cast<std::int64_t>(side), 0}});
  return result;
}

// The list of numbers is made on the host: every use copies it to the device, and the graph keeps the host's.
Tensor window_order(Tape& tape, Dim tokens, const WindowGrid& grid, WindowOrder order) {
  const auto copy = [&tape, tokens, grid, order] {
    Attr attr = grid.attr();
    attr.x = order == WindowOrder::back ? 1 : 0;
    Tensor result = tape.empty(OpKind::window_order, {tokens}, DType::i64);
    tape.run(OpKind::window_order, {}, {&result}, attr);
    return result;
  };
  Tensor result = copy();
  tape.remake(result, copy);
  return result;
}

Tensor packed_attention(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& ends,
                        const WindowGrid& grid) {
  Tape& tape = query.tape();
  const Tensor q = tape.autocast_low(query), k = tape.autocast_low(key), v = tape.autocast_low(value);
  Node* node = tape.node(packed_attention_rule, {&q, &k, &v});
  if (node != nullptr) node->attr = grid.attr();
  for (const Tensor* input : {&q, &k, &v})
    tape.save(node, *input);
  const auto strides = elementwise_strides(q.shape(), q);
  Tensor out = tape.empty(OpKind::packed_attention, q.shape(), q.dtype(), strides ? &*strides : nullptr);
  const Tensor logsumexp = tape.empty(OpKind::packed_attention, {q.dim(0), q.dim(1), q.dim(2)}, DType::f32);
  const Tensor random = tape.empty(OpKind::packed_attention, {{2, Sym::none}}, DType::i64);
  tape.run(OpKind::packed_attention, {&q, &k, &v, &ends}, {&out, &logsumexp, &random}, grid.attr());
  tape.save_output(node, out);
  for (const Tensor* output : {&logsumexp, &ends, &random})
    tape.save(node, *output);
  tape.attach(node, out);
  return out;
}

Tensor causal_or_block_mask(const Tensor& blocks, std::uint64_t window) {
  Tape& tape = blocks.tape();
  const Dim one{1, Sym::none}, s = blocks.dim(1);
  Tensor mask = tape.empty(OpKind::causal_mask, {blocks.dim(0), one, s, s}, DType::boolean);
  tape.run(OpKind::causal_mask, {&blocks}, {&mask}, {0, {0, static_cast<std::int64_t>(window)}});
  return mask;
}

}  // namespace ledger
