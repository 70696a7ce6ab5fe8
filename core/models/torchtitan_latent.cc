// torchtitan_latent.cc - DeepSeek's attention as torchtitan writes it.
//
// Source: torchtitan models/deepseek_v3/model/model.py, Attention, at v0.2.0 and v0.2.2.
#include "core/models/attention.h"
#include "core/models/torchtitan.h"

namespace ledger {
namespace {

Dim of_size(std::uint64_t size) {
  return {size, Sym::none};
}

}  // namespace

void TorchtitanDecoder::make_latent(ModuleBuilder& builder, const std::string& at, Layer& layer) const {
  const LatentConfig& m = config_->latent;
  const std::uint64_t heads = config_->num_attention_heads;
  if (m.q_rank == 0) {
    layer.q = Linear::make(builder, at, "wq", dims_.h, dims_.q_dim, false);
  } else {
    layer.q_a = Linear::make(builder, at, "wq_a", dims_.h, of_size(m.q_rank), false);
    layer.q_norm = make_norm(builder, at, "q_norm", of_size(m.q_rank), false);
    layer.q = Linear::make(builder, at, "wq_b", of_size(m.q_rank), dims_.q_dim, false);
  }
  layer.k = Linear::make(builder, at, "wkv_a", dims_.h, of_size(plus(m.kv_rank, m.rope_dim)), false);
  layer.k_norm = make_norm(builder, at, "kv_norm", of_size(m.kv_rank), false);
  layer.v =
      Linear::make(builder, at, "wkv_b", of_size(m.kv_rank), of_size(times(heads, plus(m.nope_dim, m.v_dim))), false);
  layer.o = Linear::make(builder, at, "wo", of_size(times(heads, m.v_dim)), dims_.h, false);
}

// apply_rotary_emb: [b, s, n, rope].
Tensor TorchtitanDecoder::rotate_part(const Tensor& x) const {
  const Tensor wide = to(x, DType::f32);
  const Tensor turned = complex_mul(wide, view(rope_cache_, {kOne, dims_.s, kOne, rope_cache_.dim(1)}));
  return to(turned, x.dtype());
}

// Attention.forward. What it has names for lives until it returns: of queries and of keys and values together their
// products, whose views these are.
Tensor TorchtitanDecoder::attend_latent(const Layer& layer, const Tensor& x) const {
  const Tape::Scope scope(x.tape(), names_.attention);
  const LatentConfig& m = config_->latent;
  const Dim nope = of_size(m.nope_dim), rope = of_size(m.rope_dim), value = of_size(m.v_dim);
  Tensor q = x;
  if (m.q_rank != 0) q = layer.q_norm.forward(layer.q_a.forward(x));
  q = view(layer.q.forward(q), {dims_.b, dims_.s, dims_.nh, dims_.d});
  Parts queries = split(q, -1, nope, rope);
  queries[1] = rotate_part(queries[1]);
  q = cat(queries[0], queries[1], -1, Sym::d);
  Tensor kv = layer.k.forward(x), k_pe;
  {
    Parts parts = split(kv, -1, of_size(m.kv_rank), rope);
    k_pe = rotate_part(unsqueeze(parts[1], 2));
    kv = layer.v.forward(layer.k_norm.forward(parts[0]));
  }
  kv = view(kv, {dims_.b, dims_.s, dims_.nh, of_size(plus(m.nope_dim, m.v_dim))});
  const Parts parts = split(kv, -1, nope, value);
  Tensor k = cat(parts[0], expand(k_pe, {dims_.b, dims_.s, dims_.nh, rope}), -1, Sym::d);
  q = transpose(q, 1, 2);
  k = transpose(k, 1, 2);
  Tensor output = attend(options_.attention, q, k, transpose(parts[1], 1, 2), Tensor()).output;
  output = view(output, {dims_.b, dims_.s, of_size(times(dims_.nh.size, value.size))});
  return layer.o.forward(output);
}

}  // namespace ledger
