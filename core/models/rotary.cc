#include "core/models/rotary.h"

namespace ledger {
namespace {

Tensor rotate_half(const Tensor& x, Dim half) {
  const Tensor x1 = slice(x, -1, 0, half);
  const Tensor x2 = slice(x, -1, half.size, half);
  return cat(neg(x2), x1, -1);
}

// Every other element beside its neighbour, negated: stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2).
Tensor rotate_pairs(const Tensor& x, Dim half) {
  const Tensor x1 = every_other(x, 0, half);
  const Tensor x2 = every_other(x, 1, half);
  return reshape(cat(unsqueeze(neg(x2), -1), unsqueeze(x1, -1), -1), x.shape());
}

// (x * cos) + (rotate_half(x) * sin), evaluated left to right as Python does.
template <class Turn>
Tensor rotate(const Tensor& x, const Tensor& cos, const Tensor& sin, Dim half, Turn turn) {
  const Tensor straight = x * cos;
  Tensor turned = turn(x, half);
  turned = turned * sin;
  return straight + turned;
}

Tensor rotate(const Tensor& x, const Tensor& cos, const Tensor& sin, Dim half) {
  return rotate(x, cos, sin, half, rotate_half);
}

using Pair = std::pair<Tensor, Tensor>;

Pair halves(const Tensor& q, const Tensor& k, const Tensor& cos, const Tensor& sin, const DecoderDims& n) {
  Tensor q_embed = rotate(q, cos, sin, n.half_rot);
  Tensor k_embed = rotate(k, cos, sin, n.half_rot);
  return {std::move(q_embed), std::move(k_embed)};
}

// transformers models/olmo2/modeling_olmo2.py, apply_rotary_pos_emb.
Pair wide(const Tensor& q, const Tensor& k, const Tensor& cos, const Tensor& sin, const DecoderDims& n) {
  const Pair turned = halves(q, k, cos, sin, n);
  return {to(turned.first, q.dtype()), to(turned.second, k.dtype())};
}

// The first part of each head turned and joined to the rest. A slice that takes all is an alias.
template <class Turn>
Pair joined(const Tensor& q, const Tensor& k, const DecoderDims& n, Turn turn) {
  const Dim rest{n.d.size - n.rot.size, Sym::none};
  const auto turning = [&](const Tensor& x) { return rest.size == 0 ? alias(x) : slice(x, -1, 0, n.rot); };
  const Tensor q_rot = turning(q), q_pass = slice(q, -1, n.rot.size, rest);
  const Tensor k_rot = turning(k), k_pass = slice(k, -1, n.rot.size, rest);
  Tensor q_embed = turn(q_rot);
  Tensor k_embed = turn(k_rot);
  q_embed = cat(q_embed, q_pass, -1, n.d.sym);
  k_embed = cat(k_embed, k_pass, -1, n.d.sym);
  return {std::move(q_embed), std::move(k_embed)};
}

// transformers models/gpt_neox/modeling_gpt_neox.py, apply_rotary_pos_emb.
Pair partial(const Tensor& q, const Tensor& k, const Tensor& cos, const Tensor& sin, const DecoderDims& n) {
  return joined(q, k, n, [&](const Tensor& x) { return rotate(x, cos, sin, n.half_rot); });
}

// table[..., :rot/2].repeat_interleave(2, dim=-1): a copy.
Tensor doubled(const Tensor& table, const DecoderDims& n) {
  const Tensor half = unsqueeze(slice(table, -1, 0, n.half_rot), -1);
  const Shape pairs{half.dim(0), half.dim(1), half.dim(2), half.dim(3), {2, Sym::none}};
  return reshape(contiguous(expand(half, pairs)), table.shape());
}

// transformers models/glm/modeling_glm.py, apply_rotary_pos_emb.
Pair glm(const Tensor& q, const Tensor& k, const Tensor& cos, const Tensor& sin, const DecoderDims& n) {
  const Tensor cos_pairs = doubled(cos, n), sin_pairs = doubled(sin, n);
  return joined(q, k, n, [&](const Tensor& x) { return rotate(x, cos_pairs, sin_pairs, n.half_rot, rotate_pairs); });
}

// transformers models/cohere/modeling_cohere.py, apply_rotary_pos_emb.
Pair interleaved(const Tensor& query, const Tensor& key, const Tensor& cos, const Tensor& sin, const DecoderDims& n) {
  const DType dtype = query.dtype();
  const Tensor q = to(query, DType::f32), k = to(key, DType::f32);
  const Tensor q_embed = rotate(q, cos, sin, n.half_rot, rotate_pairs);
  const Tensor k_embed = rotate(k, cos, sin, n.half_rot, rotate_pairs);
  return {to(q_embed, dtype), to(k_embed, dtype)};
}

Tensor frequencies(Tape& tape, double theta, Dim half, bool scaled) {
  const Tape::In in(tape, Category::buffers);
  Tensor buffer = tape.empty(OpKind::load_buffer, {half}, DType::f32);
  tape.run(OpKind::load_buffer, {}, {&buffer}, {theta, {scaled ? 0 : 1, 0}});
  return buffer;
}

}  // namespace

RotaryStyle rotary_style(const ModelConfig& config) {
  if (config.style.norm == NormKind::cohere) return RotaryStyle::interleaved;
  if (config.model_type == "olmo" || config.model_type == "olmo2") return RotaryStyle::wide;
  if (config.model_type == "glm" || config.model_type == "glm4") return RotaryStyle::glm;
  const bool in_part =
      config.rotary_dim != 0 || config.style.projections == Projections::sliced || config.model_type == "gpt_neox";
  return in_part ? RotaryStyle::partial : RotaryStyle::halves;
}

RotaryEmbedding RotaryEmbedding::make(Tape& tape, const ModelConfig& config, double theta, bool scaled,
                                      const DecoderDims& dims) {
  const Tape::Scope scope(tape, "rotary_emb");
  RotaryEmbedding rotary;
  rotary.style = rotary_style(config);
  rotary.inv_freq = frequencies(tape, theta, dims.half_rot, scaled);
  rotary.original_inv_freq = frequencies(tape, theta, dims.half_rot, scaled);
  return rotary;
}

Rotary RotaryEmbedding::forward(const Tensor& x, const Tensor& position_ids, const DecoderDims& dims) const {
  Tape& tape = x.tape();
  const Tape::Scope scope(tape, "rotary_emb");
  const Tape::NoGrad no_grad(tape);
  const Dim one{1, Sym::none}, rows = position_ids.dim(0);  // 1, or b where the positions come from a padding mask
  const Tensor inv_freq_expanded = expand(view(inv_freq, {one, dims.half_rot, one}), {rows, dims.half_rot, one});
  const Tensor position_ids_expanded = to(view(position_ids, {rows, one, position_ids.dim(1)}), DType::f32);
  const Tape::Autocast autocast(tape, false);
  const Tensor freqs = transpose(bmm(inv_freq_expanded, position_ids_expanded), 1, 2);
  const Tensor emb = style == RotaryStyle::interleaved ? reshape(cat(unsqueeze(freqs, -1), unsqueeze(freqs, -1), -1),
                                                                 {rows, position_ids.dim(1), dims.rot})
                                                       : cat(freqs, freqs, -1, dims.rot.sym);
  const Tensor cos = ledger::cos(emb) * 1.0;  // attention_scaling
  const Tensor sin = ledger::sin(emb) * 1.0;
  if (style == RotaryStyle::wide) return {cos, sin};
  return {to(cos, x.dtype()), to(sin, x.dtype())};
}

std::pair<Tensor, Tensor> apply_rotary(RotaryStyle style, const Tensor& q, const Tensor& k, const Rotary& rotary,
                                       const DecoderDims& n) {
  const Tensor cos = unsqueeze(rotary.cos, 1);
  const Tensor sin = unsqueeze(rotary.sin, 1);
  constexpr Pair (*kApply[])(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const DecoderDims&) = {
      halves, wide, partial, interleaved, glm};
  return kApply[static_cast<std::size_t>(style)](q, k, cos, sin, n);
}

}  // namespace ledger
