// megatron_attention.cc - attention that writes its scores out: Transformer Engine's UnfusedDotProductAttention, and
// Megatron-Core's own DotProductAttention.
//
// Source: Megatron-LM megatron/core/transformer/dot_product_attention.py, fusions/fused_softmax.py; TransformerEngine
// pytorch/attention/dot_product_attention/backends.py, 2026.
#include <cmath>

#include "core/models/megatron.h"
#include "core/models/megatron_tensors.h"

namespace ledger {
namespace {

void causal_softmax_backward(Node& node, const Gradients& in, Gradients& out) {
  const Tensor probabilities = node.tape->unpack(node, 0);
  out[0] = node.tape->empty(OpKind::softmax_backward, node.input_shape, node.input_dtype);
  node.tape->run(OpKind::softmax_backward, {&in[0], &probabilities}, {&out[0]}, node.attr);
}

// softmax(scale x scores) [n, s, s] of the keys that each query may see. (The scale is the product's there.)
Tensor causal_softmax(const Tensor& scores, double scale) {
  Tape& tape = scores.tape();
  Node* node = tape.node(causal_softmax_backward, {&scores});
  const Attr attr{scale, {1, 0}};
  if (node != nullptr) node->attr = attr;
  Tensor result = tape.empty(OpKind::softmax, scores.shape(), scores.dtype());
  tape.run(OpKind::softmax, {&scores}, {&result}, attr);
  tape.save_output(node, result);
  tape.attach(node, result);
  return result;
}

}  // namespace

// q, k and v as [b n, s, d]; keys and values are repeated for every query head.
MegatronStage::Folded MegatronStage::folded(const Tensor& q, const Tensor& k, const Tensor& v) const {
  const Dim heads = megatron::times_dim(b_, np_);
  const auto widened = [&](const Tensor& x) {
    const Shape shape{s_, heads, x.dim(3)};
    if (ng_.size == np_.size) return transpose(reshape(x, shape), 0, 1);
    const Dim each{np_.size / ng_.size, Sym::none};
    const Tensor copies = contiguous(expand(unsqueeze(x, 3), {s_, b_, ng_, each, d_}));
    return transpose(reshape(copies, shape), 0, 1);
  };
  Folded f;
  f.query = transpose(reshape(q, {s_, heads, d_}), 0, 1);
  f.key = transpose(widened(k), 1, 2);
  f.value = widened(v);
  return f;
}

Tensor MegatronStage::unfolded(const Tensor& context) const {
  const Dim width = context.dim(2);
  const Tensor heads = transpose(transpose(view(context, {b_, np_, s_, width}), 1, 2), 0, 1);
  return reshape(contiguous(heads), {s_, b_, megatron::times_dim(np_, width)});
}

double MegatronStage::scale_of_scores() const {
  return 1 / std::sqrt(static_cast<double>(d_.size));
}

// Scores, probabilities and dropped probabilities [b n, s, s] in 16 bits. q, k, v [s, b, n, d].
Tensor MegatronStage::unfused(const Tensor& q, const Tensor& k, const Tensor& v) const {
  const Folded f = folded(q, k, v);
  Tensor probabilities;
  {
    const Tensor scores = bmm(f.query, f.key);
    probabilities = causal_softmax(scores, scale_of_scores());
  }
  probabilities = dropout(probabilities, c_.attention_dropout);
  return unfolded(bmm(probabilities, f.value));
}

// baddbmm is given a part of the memory buffer to add nothing of (beta 0). The scores stay until forward returns.
Tensor MegatronStage::dot_product(const Tensor& q, const Tensor& k, const Tensor& v) const {
  const Folded f = folded(q, k, v);
  memory_buffer({f.query.dim(0), s_, s_});
  const Tensor scores = bmm(f.query, f.key);
  const Tensor probabilities = dropout(causal_softmax(scores, scale_of_scores()), c_.attention_dropout);
  return unfolded(bmm(probabilities, f.value));
}

}  // namespace ledger
