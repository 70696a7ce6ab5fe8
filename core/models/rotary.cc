#include "core/models/rotary.h"

#include <utility>
#include <vector>

namespace ledger {

Tensor rotate_half(const Tensor& x, Dim half) {
  const Tensor x1 = slice(x, -1, 0, half);
  const Tensor x2 = slice(x, -1, half.size, half);
  return cat(neg(x2), x1, -1);
}

namespace {

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

}  // namespace

Tensor turn_halves(const Tensor& x, const Tensor& cos, const Tensor& sin, Dim half) {
  return rotate(x, cos, sin, half, rotate_half);
}

namespace {

Turned halves(const Tensor& q, const Tensor& k, const Tensor& cos, const Tensor& sin, const DecoderDims& n) {
  Tensor q_embed = turn_halves(q, cos, sin, n.half_rot);
  Tensor k_embed = turn_halves(k, cos, sin, n.half_rot);
  return {std::move(q_embed), std::move(k_embed), Tensor(), Tensor()};
}

// transformers models/olmo2/modeling_olmo2.py, apply_rotary_pos_emb.
Turned wide(const Tensor& q, const Tensor& k, const Tensor& cos, const Tensor& sin, const DecoderDims& n) {
  const Turned turned = halves(q, k, cos, sin, n);
  return {to(turned.q, q.dtype()), to(turned.k, k.dtype()), Tensor(), Tensor()};
}

// The first part of each head turned and joined to the rest; with `kept`, the turned parts keep their names. A slice
// that takes all is an alias.
template <class Turn>
Turned joined(const Tensor& q, const Tensor& k, const DecoderDims& n, Turn turn, bool kept = false) {
  const Dim rest{n.d.size - n.rot.size, Sym::none};
  const auto turning = [&](const Tensor& x) { return rest.size == 0 ? alias(x) : slice(x, -1, 0, n.rot); };
  const Tensor q_rot = turning(q), q_pass = slice(q, -1, n.rot.size, rest);
  const Tensor k_rot = turning(k), k_pass = slice(k, -1, n.rot.size, rest);
  Turned turned;
  turned.q_part = turn(q_rot);
  turned.k_part = turn(k_rot);
  turned.q = cat(turned.q_part, q_pass, -1, n.d.sym);
  if (!kept) turned.q_part.reset();
  turned.k = cat(turned.k_part, k_pass, -1, n.d.sym);
  if (!kept) turned.k_part.reset();
  return turned;
}

// transformers models/gpt_neox/modeling_gpt_neox.py, apply_rotary_pos_emb.
Turned partial(const Tensor& q, const Tensor& k, const Tensor& cos, const Tensor& sin, const DecoderDims& n) {
  return joined(q, k, n, [&](const Tensor& x) { return turn_halves(x, cos, sin, n.half_rot); });
}

// transformers models/phi/modeling_phi.py, PhiAttention.forward.
Turned partial_kept(const Tensor& q, const Tensor& k, const Tensor& cos, const Tensor& sin, const DecoderDims& n) {
  constexpr bool kKept = true;
  return joined(
      q, k, n, [&](const Tensor& x) { return turn_halves(x, cos, sin, n.half_rot); }, kKept);
}

// table[..., :rot/2].repeat_interleave(2, dim=-1): a copy.
Tensor doubled(const Tensor& table, const DecoderDims& n) {
  const Tensor half = unsqueeze(slice(table, -1, 0, n.half_rot), -1);
  const Shape pairs{half.dim(0), half.dim(1), half.dim(2), half.dim(3), {2, Sym::none}};
  return reshape(contiguous(expand(half, pairs)), table.shape());
}

// transformers models/glm/modeling_glm.py, apply_rotary_pos_emb.
Turned glm(const Tensor& q, const Tensor& k, const Tensor& cos, const Tensor& sin, const DecoderDims& n) {
  const Tensor cos_pairs = doubled(cos, n), sin_pairs = doubled(sin, n);
  return joined(q, k, n, [&](const Tensor& x) { return rotate(x, cos_pairs, sin_pairs, n.half_rot, rotate_pairs); });
}

// transformers models/cohere/modeling_cohere.py, apply_rotary_pos_emb.
Turned interleaved(const Tensor& query, const Tensor& key, const Tensor& cos, const Tensor& sin, const DecoderDims& n) {
  const DType dtype = query.dtype();
  const Tensor q = to(query, DType::f32), k = to(key, DType::f32);
  const Tensor q_embed = rotate(q, cos, sin, n.half_rot, rotate_pairs);
  const Tensor k_embed = rotate(k, cos, sin, n.half_rot, rotate_pairs);
  return {to(q_embed, dtype), to(k_embed, dtype), Tensor(), Tensor()};
}

// transformers models/gpt_oss/modeling_gpt_oss.py, _apply_rotary_emb, and models/deepseek_v3/modeling_deepseek_v3.py,
// apply_rotary_pos_emb_interleave.
Tensor turned_in_pairs(const Tensor& x1, const Tensor& x2, const Tensor& cos, const Tensor& sin) {
  Tensor first, second;
  {
    const Tensor straight = x1 * cos, turned = x2 * sin;
    first = sub(straight, turned);
  }
  {
    const Tensor straight = x2 * cos, turned = x1 * sin;
    second = straight + turned;
  }
  return cat(first, second, -1);
}

Tensor turned_in_chunks(const Tensor& x, const Tensor& cos, const Tensor& sin, Dim half) {
  const Parts halves = split(x, -1, half, 2);
  return turned_in_pairs(halves[0], halves[1], cos, sin);
}

Turned chunked(const Tensor& q, const Tensor& k, const Tensor& cos, const Tensor& sin, const DecoderDims& n) {
  Tensor q_embed = turned_in_chunks(q, cos, sin, n.half_rot);
  Tensor k_embed = turned_in_chunks(k, cos, sin, n.half_rot);
  return {std::move(q_embed), std::move(k_embed), Tensor(), Tensor()};
}

Turned paired(const Tensor& q, const Tensor& k, const Tensor& cos_twice, const Tensor& sin_twice,
              const DecoderDims& n) {
  const Tensor cos = slice(cos_twice, -1, 0, n.half_rot), sin = slice(sin_twice, -1, 0, n.half_rot);
  const Tensor q1 = every_other(q, 0, n.half_rot), q2 = every_other(q, 1, n.half_rot);
  const Tensor k1 = every_other(k, 0, n.half_rot), k2 = every_other(k, 1, n.half_rot);
  Tensor q_embed = turned_in_pairs(q1, q2, cos, sin);
  Tensor k_embed = turned_in_pairs(k1, k2, cos, sin);
  return {std::move(q_embed), std::move(k_embed), Tensor(), Tensor()};
}

// transformers models/deepseek_v2/modeling_deepseek_v2.py, apply_rotary_emb.
Turned complex(const Tensor& query, const Tensor& key, const Tensor& turns, const Tensor&, const DecoderDims&) {
  const Tensor q = to(query, DType::f32);
  const Tensor k = to(key, DType::f32);
  Tensor q_out = complex_mul(q, turns);
  q_out = to(q_out, query.dtype());
  Tensor k_out = complex_mul(k, turns);
  k_out = to(k_out, key.dtype());
  return {std::move(q_out), std::move(k_out), Tensor(), Tensor()};
}

// transformers models/llama4/modeling_llama4.py, apply_rotary_emb.
Turned complex_both(const Tensor& query, const Tensor& key, const Tensor& turns, const Tensor&, const DecoderDims&) {
  const Tensor q = to(query, DType::f32);
  const Tensor k = to(key, DType::f32);
  const Tensor q_out = complex_mul(q, turns);
  const Tensor k_out = complex_mul(k, turns);
  return {to(q_out, query.dtype()), to(k_out, key.dtype()), Tensor(), Tensor()};
}

// Angles [1, s, rot/2] for every element that they turn.
Tensor repeated(RotaryStyle style, const Tensor& freqs, const DecoderDims& n) {
  if (style == RotaryStyle::chunked) return freqs;
  if (style != RotaryStyle::interleaved) return cat(freqs, freqs, -1, n.rot.sym);
  return reshape(cat(unsqueeze(freqs, -1), unsqueeze(freqs, -1), -1), {freqs.dim(0), freqs.dim(1), n.rot});
}

// torch.polar(torch.ones_like(freqs), freqs)
Tensor polar_of(const Tensor& freqs) {
  const Tensor ones = ones_like(freqs);
  return polar(freqs);
}

// models/qwen2_vl/modeling_qwen2_vl.py, apply_multimodal_rotary_pos_emb: of every section the table of its own axis.
Tensor of_axes(const Tensor& tables, const RotarySections& sections) {
  const Shape one_axis{tables.dim(1), tables.dim(2), tables.dim(3)};
  std::vector<Tensor> parts;
  std::uint64_t start = 0;
  for (std::size_t i = 0; i < 2 * sections.size(); ++i) {
    const std::size_t axis = i % sections.size();
    const Tensor table = view(slice(tables, 0, axis, {1, Sym::none}), one_axis);
    parts.push_back(slice(table, -1, start, {sections[axis], Sym::none}));
    start += sections[axis];
  }
  return cat(parts, -1, tables.dim(3));
}

}  // namespace

Tensor inverse_frequencies(Tape& tape, double theta, Dim half, bool scaled) {
  const Tape::In in(tape, Category::buffers);
  Tensor buffer = tape.empty(OpKind::load_buffer, {half}, DType::f32);
  tape.run(OpKind::load_buffer, {}, {&buffer}, {theta, {scaled ? 0 : 1, 0}});
  return buffer;
}

Tensor rotate_every_two(const Tensor& x, const Tensor& cos, const Tensor& sin, Dim half) {
  return rotate(x, cos, sin, half, rotate_pairs);
}

RotaryStyle rotary_style(const ModelConfig& config) {
  if (config.model_type == "deepseek_v2") return RotaryStyle::complex;
  if (config.style.projections == Projections::latent)
    return config.latent.interleaved ? RotaryStyle::paired : RotaryStyle::halves;
  if (config.style.norm == NormKind::cohere) return RotaryStyle::interleaved;
  if (config.model_type == "olmo" || config.model_type == "olmo2") return RotaryStyle::wide;
  if (config.style.sinks) return RotaryStyle::chunked;
  if (config.model_type == "glm" || config.model_type == "glm4") return RotaryStyle::glm;
  if (config.model_type == "phi" || config.model_type == "stablelm") return RotaryStyle::partial_kept;
  if (config.model_type == "llama4_text") return RotaryStyle::complex_both;
  const bool in_part =
      config.rotary_dim != 0 || config.style.projections == Projections::sliced || config.model_type == "gpt_neox";
  return in_part ? RotaryStyle::partial : RotaryStyle::halves;
}

RotaryEmbedding RotaryEmbedding::make(Tape& tape, const ModelConfig& config, double theta, bool scaled,
                                      const DecoderDims& dims) {
  const Tape::Scope scope(tape, "rotary_emb");
  RotaryEmbedding rotary;
  rotary.style = rotary_style(config);
  rotary.sections = config.rope_sections;
  rotary.inv_freq = inverse_frequencies(tape, theta, dims.half_rot, scaled);
  rotary.original_inv_freq = inverse_frequencies(tape, theta, dims.half_rot, scaled);
  return rotary;
}

// Qwen2VLRotaryEmbedding.forward: positions [3, b, s].
Rotary RotaryEmbedding::of_three(const Tensor& x, const Tensor& position_ids, const DecoderDims& dims) const {
  const Dim one{1, Sym::none}, axes = position_ids.dim(0), rows = position_ids.dim(1);
  const Tensor inv_freq_expanded =
      expand(view(inv_freq, {one, one, dims.half_rot, one}), {axes, rows, dims.half_rot, one});
  const Tensor position_ids_expanded = to(unsqueeze(position_ids, 2), DType::f32);
  const Tape::Autocast autocast(x.tape(), false);
  const Tensor freqs = transpose(matmul(inv_freq_expanded, position_ids_expanded), 2, 3);
  const Tensor emb = cat(freqs, freqs, -1, dims.rot.sym);
  const Tensor cos = ledger::cos(emb) * 1.0;  // attention_scaling
  const Tensor sin = ledger::sin(emb) * 1.0;
  Tensor cast = to(cos, x.dtype());
  return {std::move(cast), to(sin, x.dtype()), sections, Tensor()};
}

Rotary RotaryEmbedding::forward(const Tensor& x, const Tensor& position_ids, const DecoderDims& dims) const {
  Tape& tape = x.tape();
  const Tape::Scope scope(tape, "rotary_emb");
  const Tape::NoGrad no_grad(tape);
  if (sections[0] != 0) return of_three(x, position_ids, dims);
  const Dim one{1, Sym::none}, rows = position_ids.dim(0);  // 1, or b where the positions come from a padding mask
  const Tensor inv_freq_expanded = expand(view(inv_freq, {one, dims.half_rot, one}), {rows, dims.half_rot, one});
  const Tensor position_ids_expanded = to(view(position_ids, {rows, one, position_ids.dim(1)}), DType::f32);
  const Tape::Autocast autocast(tape, false);
  const Tensor freqs = transpose(bmm(inv_freq_expanded, position_ids_expanded), 1, 2);
  if (style == RotaryStyle::complex || style == RotaryStyle::complex_both) {
    Tensor turns = polar_of(freqs);
    turns = turns * 1.0;  // attention_scaling
    return {turns, Tensor(), {}, Tensor()};
  }
  const Tensor emb = repeated(style, freqs, dims);
  const Tensor cos = ledger::cos(emb) * 1.0;  // attention_scaling
  const Tensor sin = ledger::sin(emb) * 1.0;
  if (style == RotaryStyle::wide) return {cos, sin, {}, inv_freq};
  Tensor cast = to(cos, x.dtype());
  return {std::move(cast), to(sin, x.dtype()), {}, inv_freq};
}

Turned apply_rotary(RotaryStyle style, const Tensor& q, const Tensor& k, const Rotary& rotary, const DecoderDims& n) {
  const bool by_axis = rotary.sections[0] != 0;
  const Tensor cos = unsqueeze(by_axis ? of_axes(rotary.cos, rotary.sections) : rotary.cos, 1);
  const Tensor all_sin = by_axis ? of_axes(rotary.sin, rotary.sections) : rotary.sin;
  const Tensor sin = all_sin ? unsqueeze(all_sin, 1) : Tensor();
  constexpr Turned (*kApply[])(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const DecoderDims&) = {
      halves, wide, partial, partial_kept, interleaved, glm, chunked, paired, complex, complex_both};
  return kApply[static_cast<std::size_t>(style)](q, k, cos, sin, n);
}

}  // namespace ledger
