// megatron_options.h - what a stage of a Megatron-Core model is built for, and who adds up its gradients.
#pragma once

#include <string>

#include "core/config/recipe.h"
#include "core/models/megatron_stages.h"
#include "core/trace/mesh.h"
#include "core/trace/tape.h"

namespace ledger {

struct MegatronOptions {
  std::uint64_t batch = 1, seq = 2048;  // seq: of the whole sequence
  std::uint64_t cp = 1, cp_rank = 0;    // ranks that the sequence is cut among (context parallelism)
  bool cp_gathers = false;              // keys and values of all by an all-gather
  std::uint64_t cp_exchanging = 1;      // of them, neighbours that exchange heads for tokens (a2a)
  std::uint64_t tp = 1, pp = 1, stage = 0;
  StageCut cut;
  std::uint64_t tp_rank = 0;
  std::uint64_t ep = 1, etp = 1;  // ranks that have other experts, and that share the matrices of one
  ExpertPlace expert;             // where this rank stands among them
  DType weights = DType::bf16;
  std::uint64_t chunks = 1;  // of the stage, under the interleaved schedule: chunk c of stage r follows c of r - 1
  bool sequence_parallel = false;
  Attention attention = Attention::sdpa;  // eager: unfused; otherwise cuDNN's, Transformer Engine's first choice
  Checkpointing checkpointing = Checkpointing::none;
  RecomputeMethod recompute_method = RecomputeMethod::uniform;
  std::uint64_t recompute_num_layers = 1;
  Bytes te_workspace = 0;  // of Transformer Engine's products
  bool rope_fusion = true;
  bool deterministic = false;
  bool fused_loss = false;
  bool local = false;  // Megatron-Core's own modules instead of Transformer Engine's
};

// Which ranks have a part of a parameter's gradient besides those of data parallelism: none; with sequence parallelism
// all that share matrices, each that of its own tokens; all that share matrices, each that of its own heads; or, of an
// expert, those whose tokens come to it.
enum class PartsOf : std::uint8_t { none, tokens, heads, expert };

// Who holds the main gradients, in which those of all micro-batches add up.
class MainGradients {
 public:
  virtual ~MainGradients() = default;
  // Called for every parameter as it is made.
  virtual void add(const Tensor& parameter, PartsOf parts) = 0;
  // param.main_grad, where products add to it themselves (gradient_accumulation_fusion); else nothing.
  virtual Tensor of(const Tensor& parameter) const = 0;
};

}  // namespace ledger
