#include "core/models/parameter_adapter.h"

namespace ledger {

// get_delta_weight: a product of two matrices, or of E pairs of them (torch.einsum, which makes it one bmm), each step
// a temporary.
Tensor AdaptedParameter::delta() const {
  Tape& tape = weight.tape();
  Tensor product;
  if (weight.rank() == 2) {
    const Tensor b = tape.autocast_low(adapter->b), a = tape.autocast_low(adapter->a);
    product = mm(b, a);
  } else {
    const Dim experts = weight.dim(0), out = weight.dim(1), in = weight.dim(2);
    const Dim r{adapter->a.dim(0).size / experts.size, Sym::r};
    const Tensor a = reshape(adapter->a, {experts, r, in});
    const Tensor b = reshape(adapter->b, {out, r, experts});
    product = bmm(transpose(transpose(b, 0, 2), 1, 2), a);
  }
  product = product * adapter->scaling;
  return to(product, weight.dtype());
}

// Registering a parametrization evaluates it once, to check the result's shape.
AdaptedParameter::Active AdaptedParameter::activate() const {
  Active active;
  if (!adapter) return active;
  active.delta = delta();
  const Tensor checked = weight + active.delta;
  return active;
}

const Tensor& AdaptedParameter::use(Active& active) const {
  if (!adapter) return weight;
  if (!active.sum) active.sum = weight + active.delta;  // kept by parametrize.cached()
  return active.sum;
}

namespace {

struct TargetsRow {
  const char* model_type;
  ExpertTargets targets;
};

constexpr ExpertTargets kProjections{"gate", "gate_proj", "up_proj", "down_proj"};

// DeepSeek V3's layers look for a buffer on the router that PEFT's wrapper hides, and V2's take the router's weight
// without calling it, so that an adapter there would never be used.
constexpr ExpertTargets kDeepSeek{"", "gate_proj", "up_proj", "down_proj"};

constexpr TargetsRow kAdapterTargets[] = {
    {"mixtral", {"gate", "w1", "w3", "w2"}},
    {"qwen2_moe", kProjections},
    {"qwen3_moe", kProjections},
    {"olmoe", kProjections},
    {"deepseek_v2", kDeepSeek},
    {"deepseek_v3", kDeepSeek},
};

}  // namespace

const ExpertTargets* expert_targets(const ModelConfig& config) {
  for (const TargetsRow& row : kAdapterTargets) {
    if (config.model_type == row.model_type) return &row.targets;
  }
  return nullptr;
}

}  // namespace ledger
