// torchtitan_experts.h - a mixture of experts as torchtitan writes it: MoE with grouped products, its experts apart
// from each other on the ranks of ExpertParallel.
//
// Source: torchtitan models/moe/{moe,utils,kernels}.py, distributed/expert_parallel.py and models/llama4/infra/
// parallelize.py (apply_fsdp, apply_moe_ep_tp) at v0.2.0 and v0.2.2.
#pragma once

#include <optional>
#include <string>

#include "core/models/decoder_dims.h"
#include "core/models/feed_forward.h"

namespace ledger {

class TitanExperts {
 public:
  // What differs between releases: outputs are put in the tokens' order and added up by a product of their own, or
  // scaled and added one by one; and experts are chosen from the best groups alone, where the model has groups.
  struct Form {
    bool sums_by_product = false, limits_groups = false;
  };

  // `config` and `options` outlive it.
  TitanExperts(const ModelConfig& config, const ModelOptions& options, Form form)
      : config_(&config), options_(&options), form_(form) {}

  // `layer` is the unit that all but the experts belong to, `experts` theirs where ranks have different ones.
  void make(ModuleBuilder& builder, const std::string& path, const DecoderDims& dims, UnitId layer, UnitId experts);

  Tensor forward(const Tensor& input) const;  // [b, s, h]

 private:
  struct Routed {
    Tensor scores, places;  // fp32 and int64 [T, k]
  };

  const MoeConfig& moe() const { return config_->moe; }
  std::uint64_t own() const { return moe().experts / options_->ep; }
  Tensor make_experts(ModuleBuilder& builder, const std::string& path, const char* name, Dim rows, Dim width) const;

  Routed route(const Tensor& x) const;
  Tensor candidates(const Tensor& scores) const;
  Tensor through_experts(const Tensor& routed) const;
  Tensor products(const Tensor& rows, std::uint64_t each) const;

  const ModelConfig* config_;
  const ModelOptions* options_;
  Form form_;
  UnitId unit_ = kNoUnit;
  Tensor w1_, w2_, w3_;  // of own experts: [own, ffn, h], [own, h, ffn], [own, ffn, h]
  Linear gate_;
  std::optional<FeedForward> shared_;
  Tensor expert_bias_, tokens_per_expert_;  // fp32 [E]
};

}  // namespace ledger
