// megatron_experts.h - a mixture of experts as Megatron-Core builds it: MoELayer with TEGroupedMLP and the token
// dispatcher alltoall.
//
// Source: Megatron-LM megatron/core/transformer/moe/{moe_layer,experts,shared_experts,token_dispatcher}.py, 2026.
#pragma once

#include <functional>
#include <string>

#include "core/config/model_config.h"
#include "core/models/megatron_expert_ops.h"
#include "core/models/megatron_options.h"

namespace ledger {

class MegatronExperts {
 public:
  using MakeParameter =
      std::function<Tensor(const std::string& path, const Shape& shape, const TensorCut& cut, PartsOf parts)>;

  // `c`, `o` and `gradients` outlive it.
  MegatronExperts(const ModelConfig& c, const MegatronOptions& o, const MainGradients& gradients)
      : c_(&c), o_(&o), gradients_(&gradients) {}
  void make(Tape& tape, const std::string& path, const MakeParameter& parameter);

  Tensor forward(const Tensor& x) const;  // [s, b, h], of this rank's tokens

 private:
  Tensor of_own(const Tensor& dispatched, const Tensor& probabilities) const;
  Tensor through_own(const Tensor& tokens, const Tensor& probabilities) const;
  Tensor of_shared(const Tensor& x) const;
  std::uint64_t own() const { return c_->moe.experts / o_->ep; }

  const ModelConfig* c_;
  const MegatronOptions* o_;
  const MainGradients* gradients_;
  Tensor router_, fc1_, fc2_;  // [E, h]; of own experts [own, 2 ffn, h], [own, h, ffn]
  Tensor shared_fc1_, shared_fc2_, shared_gate_;
  // What the token dispatcher holds until the next micro-batch comes.
  mutable megatron::Routed routed_;
  mutable Tensor places_;
};

}  // namespace ledger
