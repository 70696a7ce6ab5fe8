#include "core/models/latent_attention.h"

#include <utility>

namespace ledger {
namespace {

constexpr double kNormEps = 1e-6;  // the class's default: the configuration's is not handed on

Dim plain(std::uint64_t size) {
  return {size, Sym::none};
}

}  // namespace

LatentProjections LatentProjections::make(ModuleBuilder& builder, const std::string& path, const ModelConfig& c,
                                          Dim hidden) {
  const LatentConfig& m = c.latent;
  const std::uint64_t heads = c.num_attention_heads;
  LatentProjections l;
  l.rank = plain(m.kv_rank);
  l.nope = plain(m.nope_dim);
  l.rope = plain(m.rope_dim);
  l.value = plain(m.v_dim);
  l.rotary = rotary_style(c);
  const Dim q_dim{times(heads, plus(m.nope_dim, m.rope_dim)), Sym::q_dim};
  const auto norm = [&](const char* name, std::uint64_t size) {
    return Norm::make(builder, path, name, c.style.norm, plain(size), kNormEps);
  };
  if (m.q_rank == 0) {
    l.q = Linear::make(builder, path, "q_proj", hidden, q_dim, false);
  } else {
    l.q_a = Linear::make(builder, path, "q_a_proj", hidden, plain(m.q_rank), c.attention_bias);
    l.q_norm = norm("q_a_layernorm", m.q_rank);
    l.q_b = Linear::make(builder, path, "q_b_proj", plain(m.q_rank), q_dim, false);
  }
  l.kv_a =
      Linear::make(builder, path, "kv_a_proj_with_mqa", hidden, plain(plus(m.kv_rank, m.rope_dim)), c.attention_bias);
  l.kv_norm = norm("kv_a_layernorm", m.kv_rank);
  l.kv_b =
      Linear::make(builder, path, "kv_b_proj", plain(m.kv_rank), plain(times(heads, plus(m.nope_dim, m.v_dim))), false);
  return l;
}

LatentHeads LatentProjections::forward(const Tensor& hidden, const Rotary& tables, const DecoderDims& n) const {
  Tensor q_states;
  if (q_norm) {
    q_states = q_a.forward(hidden);
    q_states = q_norm->forward(q_states);
    q_states = q_b.forward(q_states);
  } else {
    q_states = q.forward(hidden);
  }
  q_states = transpose(view(q_states, {n.b, n.s, n.nh, n.d}), 1, 2);
  Parts q_parts = split(q_states, -1, nope, rope);
  const Tensor compressed = kv_a.forward(hidden);
  Parts k_parts = split(compressed, -1, rank, rope);
  Tensor k_pass = kv_norm->forward(k_parts[0]);
  k_pass = kv_b.forward(k_pass);
  k_pass = transpose(view(k_pass, {n.b, n.s, n.nh, plain(plus(nope.size, value.size))}), 1, 2);
  Parts kv_parts = split(k_pass, -1, nope, value);
  Tensor k_rot = view(k_parts[1], {n.b, plain(1), n.s, rope});
  k_parts = {};
  {
    Turned turned = apply_rotary(rotary, q_parts[1], k_rot, tables, n);
    q_parts[1] = std::move(turned.q);
    k_rot = std::move(turned.k);
  }
  k_rot = expand(k_rot, {n.b, n.nh, n.s, rope});
  LatentHeads heads;
  heads.q = cat(q_parts[0], q_parts[1], -1, Sym::d);
  heads.k = cat(kv_parts[0], k_rot, -1, Sym::d);
  heads.v = std::move(kv_parts[1]);
  heads.locals = {std::move(q_states), std::move(q_parts[1]), compressed, std::move(k_pass), std::move(k_rot)};
  return heads;
}

}  // namespace ledger
