#include "core/models/falcon.h"

#include <tuple>

namespace ledger {
namespace {

SelfAttention::Heads in_heads(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& fused) {
  return {transpose(q, 1, 2), transpose(k, 1, 2), transpose(v, 1, 2), fused};
}

// [b, s, heads and one key and one value, d]
SelfAttention::Heads of_one_group(const Tensor& fused, const DecoderDims& n) {
  const Tensor all = view(fused, {n.b, n.s, {plus(n.nh.size, 2), Sym::none}, n.d});
  const Tensor query = slice(all, 2, 0, n.nh);
  const Tensor key = take(all, 2, n.nh.size), value = take(all, 2, plus(n.nh.size, 1));
  return in_heads(query, key, value, fused);
}

// [b, s, groups, heads of a group and its key and value, d]
SelfAttention::Heads of_groups(const Tensor& fused, const DecoderDims& n) {
  const Dim heads{n.nh.size / n.nkv.size, Sym::none};
  const Tensor all = view(fused, {n.b, n.s, n.nkv, {plus(heads.size, 2), Sym::none}, n.d});
  const Tensor query = slice(all, 3, 0, heads);
  Tensor key = take(all, 3, heads.size), value = take(all, 3, plus(heads.size, 1));
  key = expand(key, query.shape());
  value = expand(value, query.shape());
  const Shape flat{n.b, n.s, n.nh, n.d};
  const Tensor q = reshape(query, flat), k = reshape(key, flat), v = reshape(value, flat);
  return in_heads(q, k, v, fused);
}

// [b, s, heads, 3, d]
SelfAttention::Heads of_every_head(const Tensor& fused, const DecoderDims& n) {
  const Tensor all = view(fused, {n.b, n.s, n.nh, {3, Sym::none}, n.d});
  const auto part = [&](std::uint64_t i) { return reshape(slice(all, 3, i, {1, Sym::none}), {n.b, n.s, n.nh, n.d}); };
  const Tensor q = part(0), k = part(1), v = part(2);
  return in_heads(q, k, v, fused);
}

}  // namespace

SelfAttention::Heads falcon_heads(const Tensor& fused, const DecoderDims& dims, bool grouped) {
  if (grouped) return of_groups(fused, dims);
  return dims.nkv.size == 1 ? of_one_group(fused, dims) : of_every_head(fused, dims);
}

Tensor falcon_layer(const DecoderLayer& layer, const Tensor& input, const LayerContext& context,
                    const DecoderDims& dims) {
  const Tensor normed = layer.input_norm.forward(input);
  const Tensor normed_for_mlp = layer.attention_norm ? layer.attention_norm->forward(input) : normed;
  Tensor attended, weights;
  std::tie(attended, weights) = layer.self_attn.forward(normed, context, dims);
  Tensor fed = layer.mlp.forward(normed_for_mlp);
  fed = add_onto(fed, attended);
  return input + fed;
}

}  // namespace ledger
