#include "core/models/experts.h"

#include <utility>

#include "core/models/llama4.h"

namespace ledger {

Tensor rows_of(const Tensor& hidden) {
  const Dim b = hidden.dim(0), s = hidden.dim(1);
  return reshape(hidden, {{times(b.size, s.size), Sym::tokens}, hidden.dim(2)});
}

namespace {

// _default_apply_gate: both halves are views of one product.
Tensor apply_gate(Act act, const Tensor& gate_up) {
  const Dim half{gate_up.dim(-1).size / 2, Sym::ffn_e};
  const Parts parts = split(gate_up, -1, half, 2);
  const Tensor activated = activate(act, parts[0]);
  return activated * parts[1];
}

// GptOssExperts._apply_gate: gate and up take turns along the product.
Tensor apply_clamped_gate(const Tensor& gate_up) {
  constexpr double kLimit = 7, kAlpha = 1.702;
  const Dim half{gate_up.dim(-1).size / 2, Sym::ffn_e};
  Tensor gate = every_other(gate_up, 0, half);
  Tensor up = every_other(gate_up, 1, half);
  gate = clamp_max(gate, kLimit);
  up = clamp(up, kLimit);
  Tensor glu = sigmoid(gate * kAlpha);
  glu = gate * glu;
  return (up + 1.0) * glu;
}

// _grouped_linear: autocast knows nothing of grouped products, so the input follows the weight. A bias, one row for
// each of x, is added in place.
Tensor grouped_linear(const Tensor& x, const Tensor& weight, bool transposed, const Tensor& bias, const Tensor& ends) {
  const Tensor out = grouped_mm(to(x, weight.dtype()), transposed ? weight : transpose(weight, 1, 2), ends);
  return bias ? add_onto(out, bias) : out;
}

// inv_perm = empty_like(perm); inv_perm[perm] = arange(n)
Tensor inverse(const Tensor& perm) {
  Tape& tape = perm.tape();
  const Tensor result = tape.empty(OpKind::index_put, perm.shape(), DType::i64);
  index_put(result, perm, arange(tape, perm.dim(0)));
  return result;
}

std::optional<Adapter> adapter_of(ModuleBuilder& builder, bool wanted, const std::string& path, const Tensor& weight,
                                  std::uint64_t matrices) {
  if (!wanted) return std::nullopt;
  const std::uint64_t experts = weight.rank() == 3 ? weight.dim(0).size : 1;
  const Dim rank{times(builder.policy().rank, matrices), Sym::r};
  return builder.adapter(path, weight.dim(-1), weight.dim(-2), rank, experts);
}

}  // namespace

Experts Experts::make(ModuleBuilder& builder, const std::string& path, const ModelConfig& c, const DecoderDims& n) {
  const Tape::Scope scope(builder.tape(), "experts");
  const std::string at = path + "experts";
  Experts experts;
  experts.act = c.act;
  const Dim both{times(2, n.ffn_e.size), Sym::none};
  const auto parameter = [&](const char* name, const Shape& shape, Parameter::Role role) {
    return builder.parameter(at, shape, role, name);
  };
  constexpr auto kMatrix = Parameter::Role::matrix, kBias = Parameter::Role::bias;
  experts.transposed = c.style.expert_bias || c.style.routing == Routing::every_expert;
  if (experts.transposed) {
    experts.gate_up.weight = parameter("gate_up_proj", {n.experts, n.h, both}, kMatrix);
    if (c.style.expert_bias) experts.gate_up_bias = parameter("gate_up_proj_bias", {n.experts, both}, kBias);
    experts.down.weight = parameter("down_proj", {n.experts, n.ffn_e, n.h}, kMatrix);
    if (c.style.expert_bias) experts.down_bias = parameter("down_proj_bias", {n.experts, n.h}, kBias);
  } else {
    experts.gate_up.weight = parameter("gate_up_proj", {n.experts, both, n.h}, kMatrix);
    experts.down.weight = parameter("down_proj", {n.experts, n.h, n.ffn_e}, kMatrix);
  }
  const ExpertTargets* targets = expert_targets(c);
  if (targets == nullptr) return experts;
  const LinearPolicy& policy = builder.policy();
  const bool up = policy.adapts(targets->gate) && policy.adapts(targets->up), down = policy.adapts(targets->down);
  const std::string inner = down ? at + ".base_layer" : at;  // wrappers nest, down_proj's outermost
  experts.gate_up.adapter = adapter_of(builder, up, inner, experts.gate_up.weight, 2);
  experts.down.adapter = adapter_of(builder, down, at, experts.down.weight, 1);
  return experts;
}

// One module with all experts' weights.
Tensor Experts::forward(const Tensor& hidden, const Routes& routes) const {
  return call_module(this, {&gate_up.weight, &down.weight, &gate_up_bias, &down_bias}, hidden,
                     [&](const Tensor& seen) { return through(seen, routes); });
}

Tensor Experts::through(const Tensor& hidden, const Routes& routes) const {
  const Tape::Scope scope(hidden.tape(), "experts");
  AdaptedParameter::Active active_down = down.activate();
  AdaptedParameter::Active active_up = gate_up.activate();
  const Dim tokens = hidden.dim(0), k = routes.experts.dim(1), count = gate_up.weight.dim(0);
  const Dim routed{times(tokens.size, k.size), Sym::routed};
  const Tensor sample_weights = reshape(routes.weights, {routed});
  const Tensor expert_ids = reshape(routes.experts, {routed});
  const Sorted sorted = sort(expert_ids);
  Tensor selected = index_rows(hidden, floor_divide(sorted.places, k.size));
  const Tensor weights = index_rows(sample_weights, sorted.places);
  const Tensor ids = to(sorted.values, DType::i32);
  const Tensor counts = histogram(ids, count);
  const Tensor ends = cumsum_last(counts);
  // Tokens of other ranks, under expert parallelism.
  const Tensor elsewhere = unsqueeze(at_least(sorted.values, count.size), -1);
  Tensor biases = gate_up_bias ? index_rows(gate_up_bias, sorted.values) : Tensor();
  selected = masked_fill_inplace(selected, elsewhere, 0);
  Tensor projected = grouped_linear(selected, gate_up.use(active_up), transposed, biases, ends);
  projected = gate_up_bias ? apply_clamped_gate(projected) : apply_gate(act, projected);
  if (down_bias) biases = index_rows(down_bias, sorted.values);
  projected = grouped_linear(projected, down.use(active_down), transposed, biases, ends);
  Tensor weighted = projected * unsqueeze(weights, -1);
  weighted = masked_fill_inplace(weighted, elsewhere, 0);
  const Tensor inverse_order = inverse(sorted.places);
  weighted = index_rows(weighted, inverse_order);
  const Tensor result = sum_over(reshape(weighted, {tokens, k, hidden.dim(1)}), 1, false);
  return to(result, hidden.dtype());
}

MixtureOfExperts MixtureOfExperts::make(ModuleBuilder& builder, const std::string& path, const ModelConfig& c,
                                        const DecoderDims& n) {
  ModuleNames names = names_of(c);
  const Tape::Scope scope(builder.tape(), names.mlp);
  const std::string at = path + names.mlp + ".";
  MixtureOfExperts moe;
  moe.name = names.mlp;
  moe.router = Router::make(builder, at, c, n);
  moe.experts = Experts::make(builder, at, c, n);
  if (c.moe.shared_width == 0) return moe;
  const bool deepseek = c.style.projections == Projections::latent;
  names.mlp = deepseek ? "shared_experts" : "shared_expert";
  moe.shared_last = deepseek;
  {
    const ModuleBuilder::WithoutAdapters none(builder, expert_targets(c) != nullptr);
    moe.shared = FeedForward::make(builder, at, c, names, n.h, {c.moe.shared_width, Sym::none});
  }
  if (c.style.shared_gate)
    moe.shared_gate = Linear::make(builder, at, "shared_expert_gate", n.h, {1, Sym::none}, false);
  return moe;
}

namespace {

// MixtralSparseMoeBlock, Qwen3MoeSparseMoeBlock: `_, weights, experts = self.gate(x)`, and the underscore is a name.
Tensor routed_only(const MixtureOfExperts& m, const Tensor& rows) {
  const Routes routes = m.router.forward(rows);
  return m.experts.forward(rows, routes);
}

// Qwen2MoeSparseMoeBlock.
Tensor with_gated_expert(const MixtureOfExperts& m, const Tensor& rows) {
  Tensor shared = m.shared->forward(rows);
  const Routes routes = m.router.forward(rows);
  Tensor output = m.experts.forward(rows, routes);
  const Tensor gate = sigmoid(m.shared_gate.forward(rows));
  shared = gate * shared;
  output = output + shared;
  return output;
}

// DeepseekV2Moe, DeepseekV3MoE: the shared experts are one MLP, run after the others.
Tensor with_shared_experts(const MixtureOfExperts& m, const Tensor& hidden, const Tensor& rows) {
  const Routes routes = m.router.forward(rows);
  const Tensor output = view(m.experts.forward(rows, routes), hidden.shape());
  const Tensor shared = m.shared->forward(hidden);
  return output + shared;
}

}  // namespace

Tensor MixtureOfExperts::forward(const Tensor& hidden) const {
  const Tape::Scope scope(hidden.tape(), name);
  if (router.rule == Routing::every_expert) return through_every_expert(*this, hidden);
  const bool reads_router = router.rule == Routing::grouped_softmax;  // DeepseekV2Moe, its gate's weight
  if (reads_router) enter_module(this, hidden);
  const Tensor rows = rows_of(hidden);
  if (shared && shared_last) {
    const Tensor output = with_shared_experts(*this, hidden, rows);
    if (reads_router) leave_module(this, output);
    return output;
  }
  const Tensor output = shared ? with_gated_expert(*this, rows) : routed_only(*this, rows);
  return reshape(output, hidden.shape());
}

}  // namespace ledger
