#include "core/models/megatron_experts.h"

#include <utility>

#include "core/trace/operators.h"

namespace ledger {
namespace {

constexpr const char* kDispatcher = "token_dispatcher";

}  // namespace

void MegatronExperts::make(Tape& tape, const std::string& path, const MakeParameter& parameter) {
  const Dim h{c_->hidden_size, Sym::h}, experts{c_->moe.experts, Sym::experts};
  const Dim own_experts{own(), o_->ep == 1 ? Sym::experts : Sym::none};
  const Dim ffn{c_->moe.width / o_->etp, o_->etp == 1 ? Sym::ffn_e : Sym::none};
  const ExpertPlace& place = o_->expert;
  const std::uint64_t part = times(ffn.size, place.tensor), first = times(own(), place.expert);
  {
    const Tape::Scope scope(tape, "router");
    router_ = parameter(path + "router.weight", {experts, h}, {}, PartsOf::tokens);
  }
  {
    const Tape::Scope scope(tape, "experts");
    const std::uint64_t rows = times(c_->moe.width, h.size);  // of gate or up
    fc1_ = parameter(path + "experts.linear_fc1.weight", {own_experts, {times(2, ffn.size), Sym::none}, h},
                     {times(ffn.size, h.size), rows, plus(times(times(2, first), rows), times(part, h.size))},
                     PartsOf::expert);
    fc2_ = parameter(path + "experts.linear_fc2.weight", {own_experts, h, ffn},
                     {ffn.size, c_->moe.width, plus(times(first, rows), part)}, PartsOf::expert);
  }
  if (c_->moe.shared_width == 0) return;
  const Tape::Scope scope(tape, "shared_experts");
  const std::string at = path + "shared_experts.";
  const Dim width{c_->moe.shared_width / o_->tp, Sym::none};
  const auto cut = [&](std::uint64_t inner) { return cut_among(o_->tp, o_->tp_rank, c_->moe.shared_width, inner); };
  shared_fc1_ = parameter(at + "linear_fc1.weight", {{times(2, width.size), Sym::none}, h}, cut(h.size), PartsOf::none);
  shared_fc2_ = parameter(at + "linear_fc2.weight", {h, width}, cut(1), PartsOf::none);
  if (c_->style.shared_gate) shared_gate_ = parameter(at + "gate_weight", {kOne, h}, {}, PartsOf::tokens);
}

// TEGroupedMLP.forward.
Tensor MegatronExperts::through_own(const Tensor& tokens, const Tensor& probabilities) const {
  const Tape::Scope scope(tokens.tape(), "experts");
  const Tensor column = unsqueeze(probabilities, -1);
  const Tensor inner = megatron::grouped_linear(tokens, fc1_, gradients_->of(fc1_));
  const Tensor activated = megatron::weighted_swiglu(inner, column);
  return megatron::grouped_linear(activated, fc2_, gradients_->of(fc2_));
}

// MoELayer.routed_experts_compute: chunks come by rank and then by expert, and lie by expert while they are computed.
Tensor MegatronExperts::of_own(const Tensor& dispatched, const Tensor& probabilities) const {
  const std::uint64_t ranks = times(o_->etp, o_->ep);
  Tensor tokens, weights;
  {
    const Tape::Scope scope(dispatched.tape(), kDispatcher);
    tokens = megatron::gather_rows(dispatched, o_->etp);
    weights = megatron::gather_rows(probabilities, o_->etp);
    if (own() > 1) {
      Tensor sorted = megatron::swap_chunks(tokens, ranks, own());
      Tensor sorted_weights = megatron::swap_chunks(weights, ranks, own());
      tokens = std::move(sorted);
      weights = std::move(sorted_weights);
    }
  }
  const Tensor output = through_own(tokens, weights);
  const Tape::Scope scope(dispatched.tape(), kDispatcher);
  const Tensor back = own() > 1 ? megatron::swap_chunks(output, own(), ranks) : output;
  return megatron::scatter_rows(back, o_->etp);
}

// SharedExpertMLP.forward.
Tensor MegatronExperts::of_shared(const Tensor& x) const {
  const auto sharing = [this](const Tensor& weight) {
    return megatron::Sharing{o_->tp, o_->sequence_parallel, gradients_->of(weight)};
  };
  const Tape::Scope scope(x.tape(), "shared_experts");
  Tensor output;
  {
    Tensor inner = megatron::gathered_linear(x, shared_fc1_, sharing(shared_fc1_));
    inner = megatron::bias_activation(inner, Tensor(), true);
    output = megatron::row_linear(inner, shared_fc2_, sharing(shared_fc2_));
  }
  if (!shared_gate_) return output;
  const Tensor gate = sigmoid(linear(x, shared_gate_, Tensor()));
  return output * gate;
}

// MoELayer.forward.
Tensor MegatronExperts::forward(const Tensor& x) const {
  Tape& tape = x.tape();
  const Tape::Scope scope(tape, "mlp");
  const bool whole = o_->tp == 1 && o_->cp == 1;
  const Dim tokens{times(x.dim(0).size, x.dim(1).size), whole ? Sym::tokens : Sym::none};
  const Dim visits{times(tokens.size, c_->moe.per_token), whole ? Sym::routed : Sym::none};
  const Tensor shared = shared_fc1_ ? of_shared(x) : Tensor();
  {
    const Tape::Scope router_scope(tape, "router");
    const Tensor logits = megatron::gating_linear(x, router_);
    routed_ = megatron::route(view(logits, {tokens, logits.dim(2)}), {c_->moe.per_token, Sym::none}, c_->moe.normalised,
                              x.dim(1).size);
  }
  const Tensor rows = view(x, {tokens, x.dim(2)});
  Tensor sent, dispatched, probabilities;  // the first two stay until the layer is done
  {
    const Tape::Scope dispatcher(tape, kDispatcher);
    megatron::Permuted permuted = megatron::permute(rows, routed_, visits);
    places_ = permuted.places;
    sent = std::move(permuted.tokens);
    dispatched = megatron::exchange(sent, o_->ep);
    probabilities = megatron::exchange(permuted.probabilities, o_->ep);
  }
  Tensor output = of_own(dispatched, probabilities);
  const Tape::Scope dispatcher(tape, kDispatcher);
  output = megatron::exchange(output, o_->ep);
  const Tensor result = view(megatron::unpermute(output, places_, rows.shape(), o_->deterministic), x.shape());
  return shared ? result + shared : result;
}

}  // namespace ledger
