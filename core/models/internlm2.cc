#include "core/models/internlm2.h"

#include <algorithm>

namespace ledger {
namespace {

// states[..., i, :]: a view.
Tensor one_of_group(const Tensor& all, std::uint64_t index, const DecoderDims& n) {
  return transpose(view(slice(all, 3, index, kOne), {n.b, n.s, n.nkv, n.d}), 1, 2);
}

}  // namespace

SelfAttention::Heads internlm2_heads(const Tensor& fused, const DecoderDims& n) {
  const std::uint64_t queries = n.nh.size / n.nkv.size;
  SelfAttention::Heads heads;
  heads.whole = view(fused, {n.b, n.s, n.nkv, {plus(queries, 2), Sym::none}, n.d});
  heads.q = slice(heads.whole, 3, 0, {queries, Sym::none});
  heads.q = transpose(reshape(heads.q, {n.b, n.s, n.nh, n.d}), 1, 2);
  heads.k = one_of_group(heads.whole, queries, n);
  heads.v = one_of_group(heads.whole, plus(queries, 1), n);
  return heads;
}

LayerRotary LayerRotary::make(Tape& tape, const ModelConfig& config, const DecoderDims& dims) {
  const Tape::Scope scope(tape, "rotary_emb");
  const Tape::In in(tape, Category::buffers);
  LayerRotary rotary;
  if (config.rope.type == "linear") rotary.divisor = config.rope.factor;
  rotary.asks_length = std::any_of(config.notes.begin(), config.notes.end(), [](const auto& note) {
    return note.first == "rope_scaling_type_not_computed";  // the class knows "linear" and "dynamic"
  });
  rotary.inv_freq = tape.empty(OpKind::load_buffer, {dims.half_d}, DType::f32);
  constexpr std::int64_t kUnscaled = 1;
  tape.run(OpKind::load_buffer, {}, {&rotary.inv_freq}, {config.rope_theta, {kUnscaled, 0}});
  return rotary;
}

// Frequencies change where a dynamically scaled sequence is longer than max_position_embeddings; their sizes do not.
Rotary LayerRotary::forward(const Tensor& x, const Tensor& position_ids, const DecoderDims& n) const {
  Tape& tape = x.tape();
  const Tape::Scope scope(tape, "rotary_emb");
  const Tape::NoGrad no_grad(tape);
  Tensor length;
  if (asks_length) {
    length = bookkeeping(tape, Shape{}, DType::i64);
    const Tensor longer = bookkeeping(tape, Shape{}, DType::boolean);
  }
  Tensor positions = position_ids;
  if (divisor != 0) positions = to(positions, DType::f32) / divisor;
  const Dim rows = position_ids.dim(0);
  const Tensor frequencies = expand(view(inv_freq, {kOne, n.half_d, kOne}), {rows, n.half_d, kOne});
  const Tensor expanded = to(view(positions, {rows, kOne, positions.dim(1)}), DType::f32);
  Tensor cos, sin;
  {
    const Tape::Autocast autocast(tape, false);
    const Tensor freqs = transpose(bmm(frequencies, expanded), 1, 2);
    const Tensor emb = cat(freqs, freqs, -1, n.d.sym);
    cos = ledger::cos(emb);
    sin = ledger::sin(emb);
    cos = to(cos, x.dtype());
    sin = to(sin, x.dtype());
  }
  return {std::move(cos), std::move(sin), {}, Tensor()};
}

// torch.full(...).triu(1), times arange(s + 1) > positions: what the product hides is hidden already.
Tensor internlm2_mask(Tape& tape, Dim b, Dim s, DType dtype) {
  const Tape::Scope scope(tape, "causal_mask");
  const Tape::NoGrad no_grad(tape);
  const Dim keys{plus(s.size, 1), Sym::s_plus_1};
  Tensor mask;
  {
    const Tensor full = bookkeeping(tape, {s, keys}, dtype);
    mask = tape.empty(OpKind::additive_mask, {s, keys}, dtype);
  }
  Tensor seen;
  {
    const Tensor places = arange(tape, keys);
    seen = causal_mask(tape, {s, keys});
  }
  tape.run(OpKind::additive_mask, {&seen}, {&mask});
  return slice(expand(view(mask, {kOne, kOne, s, keys}), {b, kOne, s, keys}), -1, 0, s);
}

}  // namespace ledger
