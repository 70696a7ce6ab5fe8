#include "core/models/llama4.h"

namespace ledger {
namespace {

// Llama4TextExperts.forward: [E T, h] in, sorted by expert.
Tensor experts_of_all(const Experts& experts, const Tensor& routed) {
  const Tape::Scope scope(routed.tape(), "experts");
  const Tensor& weight = experts.gate_up.weight;
  const Dim count = weight.dim(0), width = routed.dim(1);
  const Dim tokens{routed.dim(0).size / count.size, Sym::tokens};
  const Tensor hidden = view(routed, {count, tokens, width});
  const Tensor gate_up = bmm(hidden, weight);
  const Dim half{gate_up.dim(-1).size / 2, Sym::ffn_e};
  const Parts parts = split(gate_up, -1, half, 2);
  Tensor next = activate(experts.act, parts[0]);
  next = parts[1] * next;
  next = bmm(next, experts.down.weight);
  return view(next, {routed.dim(0), width});
}

// hidden.repeat(E, 1)
Tensor repeated(const Tensor& rows, Dim count) {
  const Dim tokens = rows.dim(0), width = rows.dim(1);
  const Tensor all = contiguous(expand(unsqueeze(rows, 0), {count, tokens, width}));
  return view(all, {{times(count.size, tokens.size), Sym::none}, width});
}

}  // namespace

Tensor through_every_expert(const MixtureOfExperts& m, const Tensor& hidden) {
  const Tensor rows = rows_of(hidden);
  const Routes routes = m.router.forward(rows);
  const Dim count = routes.weights.dim(1), tokens = rows.dim(0);
  Tensor routed = repeated(rows, count);
  {
    const Tensor scores = reshape(transpose(routes.weights, 0, 1), {routed.dim(0), {1, Sym::none}});
    routed = routed * scores;
  }
  const Experts& experts = m.experts;
  const Tensor results = call_module(&experts, {&experts.gate_up.weight, &experts.down.weight}, routed,
                                     [&](const Tensor& seen) { return experts_of_all(experts, seen); });
  Tensor output = m.shared->forward(rows);
  {
    const Tensor sum = sum_over(view(results, {count, tokens, rows.dim(1)}), 0, false);
    output = add_onto(output, sum);
  }
  return view(output, hidden.shape());
}

Tensor over_mean_square(const Tensor& x, double eps) {
  const Tensor wide = to(x, DType::f32);
  Tensor normed;
  {
    const Tensor variance = mean_last(pow(wide, 2)) + eps;
    normed = wide * rsqrt(variance);
  }
  return to(normed, x.dtype());
}

QueryScales query_scales(Tape& tape, const DecoderDims& n, double floor_scale, double scale) {
  QueryScales scales;
  scales.positions = arange(tape, n.s);
  scales.positions = add(scales.positions, 0.0);  // + past_seen_tokens
  Tensor x = to(scales.positions, DType::f32);
  x = x + 1.0;
  x = x / floor_scale;
  x = floor(x);
  x = log1p(x);
  x = x * scale;
  x = x + 1.0;
  const Dim one{1, Sym::none};
  scales.of_queries = expand(view(x, {one, one, n.s, one}), {n.b, one, n.s, one});
  return scales;
}

Tensor scaled_queries(const Tensor& queries, const QueryScales& scales) {
  const Tensor product = queries * scales.of_queries;
  return to(product, queries.dtype());
}

}  // namespace ledger
