#include "core/models/experts.h"

#include <utility>

namespace ledger {
namespace {

// [b, s, h] as [b*s, h].
Tensor rows_of(const Tensor& hidden) {
  const Dim b = hidden.dim(0), s = hidden.dim(1);
  return reshape(hidden, {{times(b.size, s.size), Sym::tokens}, hidden.dim(2)});
}

// _default_apply_gate: both halves are views of one product.
Tensor apply_gate(Act act, const Tensor& gate_up) {
  const Dim half{gate_up.dim(-1).size / 2, Sym::ffn_e};
  const Parts parts = split(gate_up, -1, half, 2);
  const Tensor activated = activate(act, parts[0]);
  return activated * parts[1];
}

// _grouped_linear: autocast knows nothing of grouped products, so the input follows the weight.
Tensor grouped_linear(const Tensor& x, const Tensor& weight, const Tensor& ends) {
  return grouped_mm(to(x, weight.dtype()), transpose(weight, 1, 2), ends);
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

Router Router::make(ModuleBuilder& builder, const std::string& path, const ModelConfig& c, const DecoderDims& n) {
  const Tape::Scope scope(builder.tape(), "gate");
  Router router;
  router.rule = c.style.routing;
  router.k = {c.moe.per_token, Sym::none};
  router.normalised = c.moe.normalised;
  router.weight.weight = builder.parameter(path + "gate", {n.experts, n.h}, Parameter::Role::matrix);
  const ExpertTargets* targets = expert_targets(c);
  const bool adapted = targets != nullptr && builder.policy().adapts(targets->router);
  router.weight.adapter = adapter_of(builder, adapted, path + "gate", router.weight.weight, 1);
  return router;
}

// MixtralTopKRouter, and Qwen2MoeTopKRouter, which returns its weights in the logits' dtype.
Routes Router::forward(const Tensor& hidden) const {
  const Tape::Scope scope(hidden.tape(), "gate");
  AdaptedParameter::Active active = weight.activate();
  Routes routes;
  routes.logits = linear(hidden, weight.use(active), Tensor());
  const Tensor probabilities = softmax(routes.logits, DType::f32);
  TopK top = topk(probabilities, k);
  if (normalised) {
    const Tensor total = sum_over(top.values, -1, true);
    top.values = div_inplace(top.values, total);
  }
  routes.weights = rule == Routing::softmax ? top.values : to(top.values, routes.logits.dtype());
  routes.experts = std::move(top.places);
  return routes;
}

Experts Experts::make(ModuleBuilder& builder, const std::string& path, const ModelConfig& c, const DecoderDims& n) {
  const Tape::Scope scope(builder.tape(), "experts");
  const std::string at = path + "experts";
  Experts experts;
  experts.act = c.act;
  const Dim both{times(2, n.ffn_e.size), Sym::none};
  const auto parameter = [&](const char* name, const Shape& shape) {
    return builder.parameter(at, shape, Parameter::Role::matrix, name);
  };
  experts.gate_up.weight = parameter("gate_up_proj", {n.experts, both, n.h});
  experts.down.weight = parameter("down_proj", {n.experts, n.h, n.ffn_e});
  const ExpertTargets* targets = expert_targets(c);
  if (targets == nullptr) return experts;
  const LinearPolicy& policy = builder.policy();
  const bool up = policy.adapts(targets->gate) && policy.adapts(targets->up), down = policy.adapts(targets->down);
  const std::string inner = down ? at + ".base_layer" : at;  // wrappers nest, down_proj's outermost
  experts.gate_up.adapter = adapter_of(builder, up, inner, experts.gate_up.weight, 2);
  experts.down.adapter = adapter_of(builder, down, at, experts.down.weight, 1);
  return experts;
}

Tensor Experts::forward(const Tensor& hidden, const Routes& routes) const {
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
  selected = masked_fill_inplace(selected, elsewhere, 0);
  Tensor projected = grouped_linear(selected, gate_up.use(active_up), ends);
  projected = apply_gate(act, projected);
  projected = grouped_linear(projected, down.use(active_down), ends);
  Tensor weighted = projected * unsqueeze(weights, -1);
  weighted = masked_fill_inplace(weighted, elsewhere, 0);
  const Tensor inverse_order = inverse(sorted.places);
  weighted = index_rows(weighted, inverse_order);
  const Tensor result = sum_over(reshape(weighted, {tokens, k, hidden.dim(1)}), 1, false);
  return to(result, hidden.dtype());
}

MixtureOfExperts MixtureOfExperts::make(ModuleBuilder& builder, const std::string& path, const ModelConfig& c,
                                        const DecoderDims& n) {
  const Tape::Scope scope(builder.tape(), "mlp");
  const std::string at = path + "mlp.";
  MixtureOfExperts moe;
  moe.router = Router::make(builder, at, c, n);
  moe.experts = Experts::make(builder, at, c, n);
  if (c.moe.shared_width == 0) return moe;
  ModuleNames names = names_of(c);
  names.mlp = "shared_expert";
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

}  // namespace

Tensor MixtureOfExperts::forward(const Tensor& hidden) const {
  const Tape::Scope scope(hidden.tape(), "mlp");
  const Tensor rows = rows_of(hidden);
  const Tensor output = shared ? with_gated_expert(*this, rows) : routed_only(*this, rows);
  return reshape(output, hidden.shape());
}

}  // namespace ledger
