#include "core/models/self_attention.h"

#include <cmath>
#include <tuple>

#include "core/models/falcon.h"
#include "core/models/feed_forward.h"
#include "core/models/gptj.h"
#include "core/models/internlm2.h"
#include "core/models/llama4.h"
#include "core/trace/liger_ops.h"

namespace ledger {
namespace {

Tensor heads_of(const Tensor& states, Dim count, const DecoderDims& n) {
  return transpose(view(states, {n.b, n.s, count, n.d}), 1, 2);
}

// One projection as heads, normed over a head (Qwen 3, Gemma 3) or over its whole width (OLMo 2). Layer norms come when
// all heads are there (Phi).
Tensor one_of(const Linear& projection, const std::optional<Norm>& norm, bool whole, const Tensor& hidden, Dim count,
              const DecoderDims& n) {
  if (norm && whole) return heads_of(norm->forward(projection.forward(hidden)), count, n);
  Tensor states = view(projection.forward(hidden), {n.b, n.s, count, n.d});
  if (norm && norm->kind != NormKind::layer) states = norm->forward(states);
  return transpose(states, 1, 2);
}

Turned turned_by_liger(const SelfAttention::Heads& heads, const Rotary& tables) {
  Tensor q = liger::rope(heads.q, tables.cos, tables.sin, tables.inv_freq);
  Tensor k = liger::rope(heads.k, tables.cos, tables.sin, tables.inv_freq);
  return {std::move(q), std::move(k), Tensor(), Tensor()};
}

}  // namespace

SelfAttention SelfAttention::make(ModuleBuilder& builder, const std::string& path, const ModelConfig& c,
                                  const ModuleNames& names, const DecoderDims& n) {
  const Tape::Scope scope(builder.tape(), names.attention);
  const std::string at = path + names.attention + ".";
  const bool bias = c.attention_bias || c.qkv_bias;
  SelfAttention attention;
  attention.name = names.attention;
  attention.projections = c.style.projections;
  attention.rotary = rotary_style(c);
  attention.liger_rope = builder.liger().on;
  attention.options = {c.attention_scale, c.attention_dropout, c.attention_softcap, c.model_type != "llama4_text"};
  attention.dropout = c.model_type == "stablelm" ? 0 : c.residual_dropout;  // StableLM drops after the MLP alone
  attention.l2_norm = c.qk_l2_norm;
  attention.norm_eps = c.rms_norm_eps;
  attention.temperature_floor = c.temperature_floor;
  attention.temperature_scale = c.temperature_scale;
  if (c.style.projections == Projections::grouped) {
    attention.rotary_emb = std::make_shared<const LayerRotary>(LayerRotary::make(builder.tape(), c, n));
    attention.options.divides = true;
    attention.returns_weights = false;
  }
  if (c.style.position == Position::table) attention.embed_positions = position_table(builder.tape(), c);
  if (c.style.sinks)
    attention.sinks = builder.parameter(path + names.attention, {n.nh}, Parameter::Role::bias, "sinks");
  const Product product = product_of(c);
  if (c.style.projections == Projections::latent) {
    attention.latent = LatentProjections::make(builder, at, c, n.h);
  } else if (c.style.projections == Projections::separate) {
    attention.q = Linear::make(builder, at, names.q, n.h, n.q_dim, bias);
    attention.k = Linear::make(builder, at, names.k, n.h, n.kv_dim, bias);
    attention.v = Linear::make(builder, at, names.v, n.h, n.kv_dim, bias);
  } else {
    const Dim all{plus(n.q_dim.size, times(2, n.kv_dim.size)), Sym::none};
    attention.qkv = Linear::make(builder, at, names.qkv, n.h, all, bias, product);
  }
  const Dim values = attention.latent ? Dim{times(n.nh.size, c.latent.v_dim), Sym::none} : n.q_dim;
  attention.o = Linear::make(builder, at, names.o, values, n.h, c.attention_bias && !c.style.bias_skips_o, product);
  attention.scales_queries = c.model_type == "opt";
  if (attention.scales_queries) attention.options.scale = 1;
  attention.grouped = c.style.projections == Projections::falcon && c.style.grouped_heads;
  attention.norms_before_heads = c.style.qk_norm == QkNorm::width;
  if (attention.norms_before_heads) {
    attention.q_norm = Norm::make(builder, at, names.q_norm, c.style.norm, n.q_dim, c.rms_norm_eps);
    attention.k_norm = Norm::make(builder, at, names.k_norm, c.style.norm, n.kv_dim, c.rms_norm_eps);
  } else if (c.style.qk_norm == QkNorm::each_head) {
    attention.q_norms = HeadNorms::make(builder, at, names.q_norm, n.nh, n.d, c.rms_norm_eps);
    attention.k_norms = HeadNorms::make(builder, at, names.k_norm, n.nkv, n.d, c.rms_norm_eps);
  } else if (c.qk_norm || c.style.qk_norm == QkNorm::head) {
    attention.q_norm = Norm::make(builder, at, names.q_norm, c.style.norm, n.d, c.rms_norm_eps);
    attention.k_norm = Norm::make(builder, at, names.k_norm, c.style.norm, n.d, c.rms_norm_eps);
  }
  const bool liger_norms = builder.liger().on && builder.liger().norms_of_heads;
  if (attention.q_norm) attention.q_norm->liger = attention.k_norm->liger = liger_norms;
  return attention;
}

SelfAttention::Heads SelfAttention::project_separately(const Tensor& hidden, const DecoderDims& n) const {
  Heads heads;
  if (scales_queries) {
    heads.q = heads_of(q.forward(hidden) * (1 / std::sqrt(static_cast<double>(n.d.size))), n.nh, n);
  } else {
    heads.q = one_of(q, q_norm, norms_before_heads, hidden, n.nh, n);
  }
  heads.k = one_of(k, k_norm, norms_before_heads, hidden, n.nkv, n);
  heads.v = one_of(v, std::nullopt, false, hidden, n.nkv, n);
  const bool normed_at_last = q_norm && q_norm->kind == NormKind::layer;
  if (normed_at_last) heads.q = q_norm->forward(heads.q);
  if (normed_at_last) heads.k = k_norm->forward(heads.k);
  if (q_norms) heads.q = q_norms->forward(heads.q);
  if (k_norms) heads.k = k_norms->forward(heads.k);
  return heads;
}

// transformers models/phi3/modeling_phi3.py: three slices of one product, which lives as long as any of them.
SelfAttention::Heads SelfAttention::project_sliced(const Tensor& hidden, const DecoderDims& n) const {
  Heads heads;
  heads.whole = qkv.forward(hidden);
  const Tensor& all = heads.whole;
  heads.q = heads_of(slice(all, -1, 0, n.q_dim), n.nh, n);
  heads.k = heads_of(slice(all, -1, n.q_dim.size, n.kv_dim), n.nkv, n);
  heads.v = heads_of(slice(all, -1, plus(n.q_dim.size, n.kv_dim.size), n.kv_dim), n.nkv, n);
  return heads;
}

// transformers models/gpt2/modeling_gpt2.py: split() in three.
SelfAttention::Heads SelfAttention::project_conv(const Tensor& hidden, const DecoderDims& n) const {
  const Parts parts = split(qkv.forward(hidden), -1, n.h, 3);
  return {heads_of(parts[0], n.nh, n), heads_of(parts[1], n.nh, n), heads_of(parts[2], n.nh, n), Tensor()};
}

// transformers models/gpt_neox/modeling_gpt_neox.py: q, k and v of a head lie side by side.
SelfAttention::Heads SelfAttention::project_by_head(const Tensor& hidden, const DecoderDims& n) const {
  Heads heads;
  const Dim three{times(3, n.d.size), Sym::none};
  heads.whole = transpose(view(qkv.forward(hidden), {n.b, n.s, n.nh, three}), 1, 2);
  Parts parts = split(heads.whole, -1, n.d, 3);
  heads.q = std::move(parts[0]);
  heads.k = std::move(parts[1]);
  heads.v = std::move(parts[2]);
  return heads;
}

// Turned already, where rotary embedding is a part of the projections.
SelfAttention::Heads SelfAttention::project(const Tensor& hidden, const Rotary& tables, const DecoderDims& n) const {
  switch (projections) {
    case Projections::latent: {
      LatentHeads heads = latent->forward(hidden, tables, n);
      return {std::move(heads.q), std::move(heads.k), std::move(heads.v), Tensor(), std::move(heads.locals)};
    }
    case Projections::sliced:
      return project_sliced(hidden, n);
    case Projections::conv:
      return project_conv(hidden, n);
    case Projections::by_head:
      return project_by_head(hidden, n);
    case Projections::grouped:
      return internlm2_heads(qkv.forward(hidden), n);
    case Projections::falcon:
      return falcon_heads(qkv.forward(hidden), n, grouped);
    default:
      return project_separately(hidden, n);
  }
}

// Flash attention wants values as wide as queries: DeepSeek's are padded, and the result is cut.
Attended SelfAttention::attend_heads(Heads& heads, const LayerContext& context, const DecoderDims& n) const {
  if (sinks) return attend_with_sinks(heads.q, heads.k, heads.v, context.mask, sinks, options);
  const bool padded = latent && kind == Attention::flash && latent->value.size != n.d.size;
  if (padded) heads.v = pad_right(heads.v, n.d, 0);
  Attended attended = attend(kind, heads.q, heads.k, heads.v, context.mask, options);
  if (padded) attended.output = slice(attended.output, -1, 0, latent->value);
  return attended;
}

std::pair<Tensor, Tensor> SelfAttention::forward(const Tensor& hidden, const LayerContext& context,
                                                 const DecoderDims& n) const {
  const Tape::Scope scope(hidden.tape(), name);
  enter_module(this, hidden, &sinks);
  Heads heads = project(hidden, context.rotary, n);
  const Rotary tables = rotary_emb ? rotary_emb->forward(heads.v, context.position_ids, n) : context.rotary;
  Turned parts;  // alive until this returns
  if (turned && tables.cos && !latent) {
    parts = liger_rope ? turned_by_liger(heads, tables) : apply_rotary(rotary, heads.q, heads.k, tables, n);
    heads.q = std::move(parts.q);
    heads.k = std::move(parts.k);
    if (l2_norm) {
      heads.q = over_mean_square(heads.q, norm_eps);
      heads.k = over_mean_square(heads.k, norm_eps);
    }
  }
  const QueryScales scales = turned || temperature_floor == 0
                                 ? QueryScales()
                                 : query_scales(hidden.tape(), n, temperature_floor, temperature_scale);
  if (scales.of_queries) heads.q = scaled_queries(heads.q, scales);
  if (context.cache != nullptr) std::tie(heads.k, heads.v) = context.cache->update(layer, heads.k, heads.v);
  if (repeats_kv) {
    heads.k = repeat_kv(heads.k, n.nh);
    heads.v = repeat_kv(heads.v, n.nh);
  }
  Attended attended = attend_heads(heads, context, n);
  const Dim width{times(n.nh.size, attended.output.dim(3).size), latent ? Sym::none : n.q_dim.sym};
  attended.output = contiguous(reshape(attended.output, {n.b, n.s, width}));
  attended.output = o.forward(attended.output);
  if (!returns_weights) attended.weights.reset();
  const Tape::Scope resid(hidden.tape(), "resid_dropout");
  attended.output = ledger::dropout(attended.output, dropout);
  leave_module(this, attended.output, &sinks);
  return {std::move(attended.output), std::move(attended.weights)};
}

}  // namespace ledger
