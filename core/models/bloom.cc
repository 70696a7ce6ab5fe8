#include "core/models/bloom.h"

#include <cmath>
#include <tuple>

namespace ledger {
namespace {

constexpr double kScale = 0.79788456;
constexpr double kCube = 0.044715;
constexpr double kSlope = 0.1070322243;

// tanh(0.79788456 * x * (1 + 0.044715 * x * x))
Tensor inner_tanh(const Tensor& x) {
  Tensor inner;
  {
    const Tensor scaled = x * kScale;
    Tensor cubic = x * kCube;
    cubic = cubic * x;
    cubic = cubic + 1.0;
    inner = scaled * cubic;
  }
  return tanh(inner);
}

// bloom_gelu_back: ff = 0.5 * x * ((1 - t * t) * (0.79788456 + 0.1070322243 * x * x)) + 0.5 * (1 + t)
Tensor slope_at(const Tensor& x) {
  const Tensor t = inner_tanh(x);
  Tensor left;
  {
    const Tensor half = x * 0.5;
    Tensor product;
    {
      Tensor falling = t * t;
      falling = rsub(falling, 1.0);
      Tensor rising = x * kSlope;
      rising = rising * x;
      rising = rising + kScale;
      product = falling * rising;
    }
    left = half * product;
  }
  Tensor right = t + 1.0;
  right = right * 0.5;
  return left + right;
}

void bloom_gelu_backward(Node& node, const Gradients& in, Gradients& out) {
  const Tensor x = node.tape->unpack(node, 0);
  const Tensor slope = slope_at(x);
  out[0] = slope * in[0];
}

// One of q, k and v of every head, [b, nh, s, d].
Tensor part_of(const Tensor& fused, std::uint64_t part, const DecoderDims& n) {
  return transpose(reshape(slice(fused, 3, part, {1, Sym::none}), {n.b, n.s, n.nh, n.d}), 1, 2);
}

// x with dropout, added to the residual: dropout_add.
Tensor dropout_add(const Tensor& x, const Tensor& residual, double p) {
  return residual + dropout(x, p);
}

// BloomAttention.forward.
std::pair<Tensor, Tensor> attention(const SelfAttention& a, const Tensor& hidden, const Tensor& residual,
                                    const LayerContext& context, const DecoderDims& n) {
  const Tape::Scope scope(hidden.tape(), a.name);
  const Dim all{times(n.b.size, n.nh.size), Sym::none};
  const Tensor fused = view(a.qkv.forward(hidden), {n.b, n.s, n.nh, {3, Sym::none}, n.d});
  const Tensor query = reshape(part_of(fused, 0, n), {all, n.s, n.d});
  const Tensor key = transpose(reshape(part_of(fused, 1, n), {all, n.s, n.d}), 1, 2);
  const Tensor value = reshape(part_of(fused, 2, n), {all, n.s, n.d});
  const Tensor scores = baddbmm(context.alibi, query, key, 1 / std::sqrt(static_cast<double>(n.d.size)));
  Tensor weights = view(scores, {n.b, n.nh, n.s, n.s});
  weights = weights + context.mask;
  Tensor probabilities = to(softmax(weights, DType::f32), query.dtype());
  probabilities = dropout(probabilities, a.options.dropout);
  Tensor merged = bmm(view(probabilities, {all, n.s, n.s}), value);
  merged = reshape(transpose(view(merged, {n.b, n.nh, n.s, n.d}), 1, 2), {n.b, n.s, n.q_dim});
  Tensor output = a.o.forward(merged);
  output = dropout_add(output, residual, a.dropout);
  return {std::move(output), std::move(probabilities)};
}

// BloomMLP.forward.
Tensor feed(const FeedForward& m, const Tensor& normed, const Tensor& residual) {
  const Tape::Scope scope(normed.tape(), m.name);
  const Tensor hidden = bloom_gelu(m.up.forward(normed));
  const Tensor output = m.down.forward(hidden);
  return dropout_add(output, residual, m.dropout);
}

}  // namespace

Tensor bloom_gelu(const Tensor& x) {
  Tape& tape = x.tape();
  Node* node = tape.node(bloom_gelu_backward, {&x});
  Tensor result;
  {
    const Tape::NoGrad no_grad(tape);
    const Tensor half = x * 0.5;
    Tensor rising = inner_tanh(x);
    rising = rising + 1.0;
    result = half * rising;
  }
  tape.save(node, x);
  if (node != nullptr) result = tape.detach(result);
  tape.attach(node, result);
  return result;
}

Tensor make_alibi(const Tensor& ones, Dim heads, DType dtype) {
  Tape& tape = ones.tape();
  const Tape::Scope scope(tape, "alibi");
  const Dim b = ones.dim(0), s = ones.dim(1), one{1, Sym::none};
  const Tensor slopes = tape.empty(OpKind::alibi_slopes, {heads}, DType::f32);
  tape.run(OpKind::alibi_slopes, {}, {&slopes});
  Tensor places = cumsum_last(ones);
  places = places + -1.0;
  places = places * ones;
  const Tensor alibi = unsqueeze(slopes, -1) * unsqueeze(places, 1);
  return to(reshape(alibi, {{times(b.size, heads.size), Sym::none}, one, s}), dtype);
}

std::pair<Tensor, Tensor> bloom_layer(const DecoderLayer& layer, const Tensor& input, const LayerContext& context,
                                      const DecoderDims& dims) {
  Tensor normed = layer.input_norm.forward(input);
  Tensor attended, weights;
  std::tie(attended, weights) = attention(layer.self_attn, normed, input, context, dims);
  normed = layer.attention_norm->forward(attended);
  Tensor output = feed(layer.mlp, normed, attended);
  return {std::move(output), std::move(weights)};
}

}  // namespace ledger
