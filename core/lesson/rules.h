// rules.h - the course's rules of thumb beyond the bytes of one GPU: compute, and what several GPUs cut and send.
//
// Beside core/training/course.h, whose bytes these divide. docs/course.md has a row for each claim.
#pragma once

#include <cstdint>

#include "core/config/model_config.h"
#include "core/config/recipe.h"

namespace ledger {

// Attention scores of all layers in 16 bits, were they materialised: L x b x heads x s x s x 2 bytes.
Bytes course_scores(const ModelConfig& config, const Recipe& recipe);

// Matrix products and attention of the layers' forward pass; backward is twice that, recomputing one more.
// flops.h counts the same off a real trace.
std::uint64_t course_forward_flops(const ModelConfig& config, const Recipe& recipe);

// Weights in the linears of all layers, and all parameters of the layers.
std::uint64_t layer_linear_parameters(const ModelConfig& config);
std::uint64_t layer_parameters(const ModelConfig& config);

// One way of cutting a model for several GPUs, as Megatron-LM does it.
struct Cut {
  std::uint64_t params_per_gpu = 0;  // of the largest share
  std::uint64_t sends = 0;           // collectives or messages of one GPU in one step, forward and backward
  Bytes bytes = 0;                   // of each
};

// Within layers (Shoeybi et al., arXiv:1909.08053, section 3): two all-reduces of the hidden state a layer and pass.
Cut tensor_cut(const ModelConfig& config, const Recipe& recipe, std::uint64_t ways);
// Between layers (Narayanan et al., arXiv:2104.04473, section 2.2): the hidden state to the next stage, its gradient
// back.
Cut pipeline_cut(const ModelConfig& config, const Recipe& recipe, std::uint64_t ways);
// Between experts (Lepikhin et al., GShard, arXiv:2006.16668): tokens to their experts and back, a layer and pass.
Cut expert_cut(const ModelConfig& config, const Recipe& recipe, std::uint64_t ways);

}  // namespace ledger
