#include "core/models/gptj.h"

#include <cmath>
#include <tuple>

namespace ledger {
namespace {

// What GPTJAttention.forward has names for while it looks up sines and cosines.
struct LookUp {
  Tensor table, places, both;  // [1, positions, rot]; int64 [1, s, rot]; [1, s, rot]
};

// torch.gather(table, 1, places) on the host's terms: along rows of the transposed tensors.
Tensor table_rows(const Tensor& table, const Tensor& places) {
  Tape& tape = table.tape();
  const Tensor result = tape.empty(OpKind::gather, places.shape(), table.dtype());
  const auto columns = [](const Tensor& x) { return transpose(view(x, {x.dim(1), x.dim(2)}), 0, 1); };
  const Tensor from = columns(table), at = columns(places), to = columns(result);
  tape.run(OpKind::gather, {&from, &at}, {&to});
  return result;
}

LookUp look_up(const Tensor& embed_positions, const Tensor& position_ids, const DecoderDims& n, DType dtype) {
  const Tape::NoGrad no_grad(embed_positions.tape());
  const Dim one{1, Sym::none};
  LookUp found;
  found.table = view(clone(embed_positions), {one, embed_positions.dim(0), n.rot});  // repeat(1, 1, 1)
  found.places = contiguous(expand(unsqueeze(position_ids, -1), {one, n.s, n.rot}));
  found.both = to(table_rows(found.table, found.places), dtype);
  return found;
}

// sin[:, :, None, :].repeat_interleave(2, 3): a copy, made for queries and for keys.
Tensor interleaved(const Tensor& half_table, const DecoderDims& n) {
  const Dim one{1, Sym::none};
  const Tensor pairs = expand(view(half_table, {one, n.s, one, n.half_rot, one}), {one, n.s, one, n.half_rot, {2}});
  return reshape(contiguous(pairs), {one, n.s, one, n.rot});
}

// apply_rotary_pos_emb.
Tensor turned(const Tensor& x, const Tensor& sin_half, const Tensor& cos_half, const DecoderDims& n) {
  const Tensor sin = interleaved(sin_half, n);
  const Tensor cos = interleaved(cos_half, n);
  return rotate_every_two(x, cos, sin, n.half_rot);
}

// GPTJAttention._attn: scores in fp32, however narrow the model.
std::pair<Tensor, Tensor> attended(const SelfAttention& a, const Tensor& query, const Tensor& key, const Tensor& value,
                                   const Tensor& mask, const DecoderDims& n) {
  const Tensor q = to(query, DType::f32);
  const Tensor k = to(key, DType::f32);
  Tensor weights = matmul(q, transpose(k, 2, 3));
  weights = weights / std::sqrt(static_cast<double>(n.d.size));
  weights = weights + mask;
  weights = softmax(q.tape().autocast_fp32(weights), q.tape().autocast_enabled() ? DType::f32 : weights.dtype());
  weights = to(weights, value.dtype());
  weights = dropout(weights, a.options.dropout);
  Tensor output = matmul(weights, value);
  return {std::move(output), std::move(weights)};
}

std::pair<Tensor, Tensor> attention(const SelfAttention& a, const Tensor& hidden, const LayerContext& context,
                                    const DecoderDims& n) {
  const Tape::Scope scope(hidden.tape(), a.name);
  const Shape heads{n.b, n.s, n.nh, n.d};
  Tensor query = view(a.q.forward(hidden), heads);
  Tensor key = view(a.k.forward(hidden), heads);
  const Tensor value = transpose(view(a.v.forward(hidden), heads), 1, 2);
  const LookUp found = look_up(a.embed_positions, context.position_ids, n, key.dtype());
  const Tensor sin = slice(found.both, -1, 0, n.half_rot);
  const Tensor cos = slice(found.both, -1, n.half_rot.size, n.half_rot);
  const Dim rest{n.d.size - n.rot.size, Sym::none};
  const auto turning = [&](const Tensor& x) { return rest.size == 0 ? alias(x) : slice(x, -1, 0, n.rot); };
  Tensor k_rot = turning(key), q_rot = turning(query);
  const Tensor k_pass = slice(key, -1, n.rot.size, rest), q_pass = slice(query, -1, n.rot.size, rest);
  k_rot = turned(k_rot, sin, cos, n);
  q_rot = turned(q_rot, sin, cos, n);
  key = cat(k_rot, k_pass, -1, n.d.sym);
  query = cat(q_rot, q_pass, -1, n.d.sym);
  key = transpose(key, 1, 2);
  query = transpose(query, 1, 2);
  Tensor output, weights;
  std::tie(output, weights) = attended(a, query, key, value, context.mask, n);
  output = reshape(contiguous(transpose(output, 1, 2)), {n.b, n.s, n.q_dim});
  output = a.o.forward(output);
  output = dropout(output, a.dropout);
  return {std::move(output), std::move(weights)};
}

}  // namespace

Tensor position_table(Tape& tape, const ModelConfig& config) {
  const Tape::Scope scope(tape, "embed_positions");
  const Tape::In in(tape, Category::buffers);
  const Shape shape{{config.max_position_embeddings, Sym::none}, {config.rotary_dim, Sym::none}};
  Tensor table = tape.empty(OpKind::sinusoids, shape, DType::f32);
  tape.run(OpKind::sinusoids, {}, {&table});
  return table;
}

std::pair<Tensor, Tensor> gptj_layer(const DecoderLayer& layer, const Tensor& input, const LayerContext& context,
                                     const DecoderDims& dims) {
  const Tensor normed = layer.input_norm.forward(input);
  Tensor output, weights;
  std::tie(output, weights) = attention(layer.self_attn, normed, context, dims);
  const Tensor fed = layer.mlp.forward(normed);
  Tensor sum = output + fed;
  sum = sum + input;
  return {std::move(sum), std::move(weights)};
}

}  // namespace ledger
