#include "core/models/router.h"

#include <limits>
#include <utility>

namespace ledger {
namespace {

using Rule = Routes (*)(const Router&, Tensor logits);

// MixtralTopKRouter, and Qwen2MoeTopKRouter, which returns its weights in the logits' dtype.
Routes of_all(const Router& r, Tensor logits) {
  Routes routes;
  routes.logits = std::move(logits);
  const Tensor probabilities = softmax(routes.logits, DType::f32);
  TopK top = topk(probabilities, r.k);
  if (r.normalised) {
    const Tensor total = sum_over(top.values, -1, true);
    top.values = div_inplace(top.values, total);
  }
  routes.weights = r.rule == Routing::softmax ? top.values : to(top.values, routes.logits.dtype());
  routes.experts = std::move(top.places);
  return routes;
}

// GptOssTopKRouter: softmax(dtype=router_top_value.dtype), which autocast leaves as it is.
Routes of_chosen(const Router& r, Tensor logits) {
  TopK top = topk(logits, r.k);
  Tensor weights = softmax(top.values, top.values.dtype());
  return {std::move(logits), std::move(weights), std::move(top.places)};
}

Dim members(const Router& r, const Tensor& scores) {
  return {scores.dim(1).size / r.groups, Sym::none};
}

// Scores [T, groups, experts of a group].
Tensor in_groups(const Router& r, const Tensor& scores) {
  return view(scores, {scores.dim(0), {r.groups, Sym::none}, members(r, scores)});
}

// zeros, scatter_(1, group_idx, 1), expand to the experts of each group: [T, E], 1 in the groups that are kept.
struct Kept {
  Tensor places, groups, mask;
};

Kept kept_groups(const Router& r, const Tensor& group_scores, const Tensor& scores) {
  Tape& tape = scores.tape();
  Kept kept;
  kept.places = topk(group_scores, {r.groups_kept, Sym::none}).places;
  kept.groups = zeros(tape, group_scores.shape(), group_scores.dtype());
  scatter_value(kept.groups, kept.places, 1);
  const Dim tokens = scores.dim(0), groups{r.groups, Sym::none};
  kept.mask = reshape(expand(unsqueeze(kept.groups, -1), {tokens, groups, members(r, scores)}), scores.shape());
  return kept;
}

// scores.masked_fill(~mask.bool(), value)
Tensor of_kept(const Tensor& scores, const Tensor& mask, double value) {
  Tensor hidden;
  {
    const Tensor flags = to(mask, DType::boolean);
    hidden = logical_not(flags);
  }
  return masked_fill(scores, hidden, value);
}

// DeepseekV2Moe.route_tokens_to_experts.
Routes grouped_softmax(const Router& r, Tensor logits) {
  const Tensor probabilities = softmax(logits, DType::f32);
  Tensor group_scores, candidates = probabilities;
  Kept kept;
  if (r.groups != 1) {
    group_scores = reshape(max_last(in_groups(r, probabilities)).values, {logits.dim(0), {r.groups, Sym::none}});
    kept = kept_groups(r, group_scores, probabilities);
    candidates = of_kept(probabilities, kept.mask, 0);
  }
  TopK top = topk(candidates, r.k);
  top.values = top.values * r.scale;
  return {std::move(logits), std::move(top.values), std::move(top.places)};
}

// DeepseekV3MoE.route_tokens_to_experts.
Routes grouped_sigmoid(const Router& r, Tensor logits) {
  const Tensor scores = sigmoid(logits);
  const Tensor corrected = scores + r.correction;
  const Tensor group_scores = sum_over(topk(in_groups(r, corrected), {2, Sym::none}).values, -1, false);
  const Kept kept = kept_groups(r, group_scores, corrected);
  const Tensor candidates = of_kept(corrected, kept.mask, -std::numeric_limits<double>::infinity());
  Tensor experts = topk(candidates, r.k).places;
  Tensor weights = gather(scores, experts);
  Tensor total;
  if (r.normalised) {
    total = sum_over(weights, -1, true) + 1e-20;
    weights = div_inplace(weights, total);
  }
  weights = weights * r.scale;
  return {std::move(logits), std::move(weights), std::move(experts)};
}

// Llama4Router: sigmoid of the chosen experts' logits, 0 for all others; [T, E].
Routes of_every_expert(const Router& r, Tensor logits) {
  Tape& tape = logits.tape();
  TopK top = topk(logits, r.k);
  constexpr double kNone = -std::numeric_limits<double>::infinity();
  Tensor scores = scatter_inplace(full(tape, logits.shape(), kNone, logits.dtype()), top.places, top.values);
  {
    const Tensor certain = sigmoid(to(scores, DType::f32));
    scores = to(certain, scores.dtype());
  }
  return {std::move(logits), std::move(scores), std::move(top.places)};
}

Tensor buffer_of_zeros(Tape& tape, const char* name, Dim size) {
  const Tape::Scope scope(tape, name);
  const Tape::In in(tape, Category::buffers);
  return zeros(tape, {size}, DType::f32);
}

bool in_fp32(Routing rule) {
  return rule == Routing::grouped_softmax || rule == Routing::grouped_sigmoid;
}

// F.linear(hidden.type(float32), weight.type(float32))
Tensor fp32_logits(const Tensor& hidden, const Tensor& weight) {
  const Tensor x = to(hidden, DType::f32);
  const Tensor w = to(weight, DType::f32);
  return linear(x, w, Tensor());
}

}  // namespace

Router Router::make(ModuleBuilder& builder, const std::string& path, const ModelConfig& c, const DecoderDims& n) {
  Router router;
  router.name = c.style.expert_bias || c.style.routing == Routing::every_expert ? "router" : "gate";
  const Tape::Scope scope(builder.tape(), router.name);
  router.rule = c.style.routing;
  router.k = {c.moe.per_token, Sym::none};
  router.normalised = c.moe.normalised;
  router.groups = c.moe.groups;
  router.groups_kept = c.moe.groups_kept;
  router.scale = c.moe.scale;
  const std::string at = path + router.name;
  router.weight.weight = builder.parameter(at, {n.experts, n.h}, Parameter::Role::matrix);
  if (c.style.expert_bias) router.bias = builder.parameter(at, {n.experts}, Parameter::Role::bias, "bias");
  if (router.rule == Routing::grouped_sigmoid)
    router.correction = buffer_of_zeros(builder.tape(), "e_score_correction_bias", n.experts);
  const ExpertTargets* targets = expert_targets(c);
  if (targets != nullptr && targets->router[0] != '\0' && builder.policy().adapts(targets->router))
    router.weight.adapter = builder.adapter(at, n.h, n.experts, {builder.policy().rank, Sym::r}, 1);
  return router;
}

Routes Router::forward(const Tensor& hidden) const {
  if (rule == Routing::grouped_softmax) {  // F.linear(hidden, self.gate.weight): nobody calls the gate
    if (ModuleHooks* const hooks = hidden.tape().module_hooks()) hooks->read_elsewhere(weight.weight);
    return through(hidden);
  }
  Routes routes;
  call_module(this, {&weight.weight, &bias}, hidden, [&](const Tensor& seen) {
    routes = through(seen);
    return routes.weights;
  });
  return routes;
}

Routes Router::through(const Tensor& hidden) const {
  constexpr Rule kRules[] = {of_all, of_all, of_chosen, grouped_softmax, grouped_sigmoid, of_every_expert};
  const Tape::Scope scope(hidden.tape(), name);
  AdaptedParameter::Active active = weight.activate();
  const Tensor& used = weight.use(active);
  Tensor logits = in_fp32(rule) ? fp32_logits(hidden, used) : linear(hidden, used, bias);
  return kRules[static_cast<std::size_t>(rule)](*this, std::move(logits));
}

}  // namespace ledger
