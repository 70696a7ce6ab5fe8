// megatron_latent.cc - multi-latent attention: queries, keys and values by way of narrow states, of which every rank
// makes those of its own tokens.
//
// Source: Megatron-LM megatron/core/transformer/multi_latent_attention.py, extensions/transformer_engine.py (TELinear,
// duplicated), models/common/embeddings/rope_utils.py (mla_rotary_interleaved), 2026.
#include "core/models/megatron.h"
#include "core/models/megatron_tensors.h"

namespace ledger {
namespace {

Dim plain_dim(std::uint64_t size) {
  return {size, Sym::none};
}

// [.., x0, y0, x1, y1, ..] as [.., x0, x1, .., y0, y1, ..].
Tensor pairs_apart(const Tensor& x) {
  const Dim pairs{x.dim(3).size / 2, Sym::none};
  const Tensor paired = view(x, {x.dim(0), x.dim(1), x.dim(2), pairs, plain_dim(2)});
  return view(contiguous(transpose(paired, 3, 4)), x.shape());
}

}  // namespace

MegatronStage::LnLinear MegatronStage::make_up_projection(const std::string& path, const char* name, Dim rank,
                                                          Dim width) {
  const Tape::Scope scope(tape_, name);
  LnLinear m;
  m.name = name;
  const std::string own = path + name;
  if (c_.latent.normed) {
    const Dim parts{c_.style.norm == NormKind::layer ? 2u : 1u, Sym::none};
    m.norm = parameter(own + ".layer_norm_weight", {parts, rank}, Parameter::Role::norm, {}, PartsOf::tokens);
  }
  m.weight = parameter(own + ".weight", {width, rank}, Parameter::Role::matrix, cut_of(width.size, rank.size));
  return m;
}

Tensor MegatronStage::make_down_projection(const std::string& path, const char* name, Dim rank) {
  const Tape::Scope scope(tape_, name);
  return parameter(path + name + ".weight", {rank, h_}, Parameter::Role::matrix, {}, PartsOf::tokens);
}

MegatronStage::Latent MegatronStage::make_latent(const std::string& path) {
  const LatentConfig& m = c_.latent;
  const Dim queries = megatron::times_dim(np_, d_);
  Latent latent;
  if (m.q_rank != 0) {
    latent.q_down = make_down_projection(path, "linear_q_down_proj", plain_dim(m.q_rank));
    latent.q_up = make_up_projection(path, "linear_q_up_proj", plain_dim(m.q_rank), queries);
  } else {
    const Tape::Scope scope(tape_, "linear_q_proj");
    latent.q_up.name = "linear_q_proj";
    latent.q_up.weight =
        parameter(path + "linear_q_proj.weight", {queries, h_}, Parameter::Role::matrix, cut_of(queries.size, h_.size));
  }
  latent.kv_down = make_down_projection(path, "linear_kv_down_proj", plain_dim(plus(m.kv_rank, m.rope_dim)));
  latent.kv_up = make_up_projection(path, "linear_kv_up_proj", plain_dim(m.kv_rank),
                                    megatron::times_dim(np_, plain_dim(plus(m.nope_dim, m.v_dim))));
  return latent;
}

Tensor MegatronStage::down(const Tensor& x, const Tensor& weight, const char* name) const {
  const Tape::Scope scope(tape_, name);
  return megatron::row_linear(x, weight, {1, false, gradients_.of(weight)});
}

Tensor MegatronStage::up(const LnLinear& m, const Tensor& x) const {
  if (m.norm) return ln_linear(m, x);
  const Tape::Scope scope(tape_, m.name);
  return megatron::gathered_linear(x, m.weight, sharing(m.weight));
}

// Every layer has rotary embeddings of its own, and keeps those of its first call.
Tensor MegatronStage::turned_apart(const Latent& latent, const Tensor& x) const {
  if (!latent.angles) latent.angles = rotary_angles();
  return megatron::plain_rope(pairs_apart(x), latent.angles);
}

MegatronStage::Heads MegatronStage::latent_heads(const Latent& latent, const Tensor& x) const {
  const LatentConfig& m = c_.latent;
  const Dim nope = plain_dim(m.nope_dim), rope = plain_dim(m.rope_dim), value = plain_dim(m.v_dim);
  Heads heads;
  Tensor k_rope, kv;
  {
    const Tensor compressed = latent.q_down ? down(x, latent.q_down, "linear_q_down_proj") : x;
    const Tensor combined = down(x, latent.kv_down, "linear_kv_down_proj");
    const Parts parts = split(combined, -1, plain_dim(m.kv_rank), rope);
    k_rope = contiguous(parts[1]);
    if (o_.sequence_parallel) k_rope = megatron::gather_from_sequence(k_rope, seat());
    heads.q = view(up(latent.q_up, compressed), {s_, b_, np_, d_});
    kv = view(up(latent.kv_up, contiguous(parts[0])), {s_, b_, np_, plain_dim(plus(m.nope_dim, m.v_dim))});
  }
  const Tape::Scope scope(tape_, "self_attention");
  const Parts q_parts = split(heads.q, -1, nope, rope), kv_parts = split(kv, -1, nope, value);
  const Tensor q_turned = turned_apart(latent, q_parts[1]);
  const Tensor k_turned = turned_apart(latent, unsqueeze(k_rope, 2));
  heads.q = cat(q_parts[0], q_turned, -1, Sym::d);
  heads.k = cat(kv_parts[0], expand(k_turned, {s_, b_, np_, rope}), -1, Sym::d);
  heads.v = contiguous(kv_parts[1]);
  return heads;
}

}  // namespace ledger
