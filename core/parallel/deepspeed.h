// deepspeed.h - DeepSpeed's ZeRO as one rank lives it, driven as accelerate drives it: initialize(), then for every
// micro-batch forward and engine.backward(), and engine.step() after the last one of a step.
//
// Source: DeepSpeed 0.19.6 (and 0.16.5, where a recipe says deepspeed 0.18.2), runtime/engine.py and
// runtime/zero/{stage_1_and_2,stage3,config}.py; accelerate accelerator.py (_prepare_deepspeed), transformers
// integrations/deepspeed.py (trainer_config_finalize). Not here: ZeRO++ (secondary and quantised partitions), MiCS,
// ZenFlow, NVMe, experts.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "core/config/recipe.h"
#include "core/models/parameter_units.h"
#include "core/parallel/flat.h"

namespace ledger {

struct ZeroOptions {
  std::uint64_t stage = 1, world = 1, rank = 0;
  std::uint64_t reduce_bucket = 0, prefetch_bucket = 0, persistence = 0;  // elements
  std::uint64_t max_live = 0, max_reuse = 0, sub_group = 0;
  bool overlap = false, reduce_scatter = true;
  bool offload_optimizer = false, offload_parameters = false;
  bool loads_whole = false;  // no zero.Init: every GPU has all weights until deepspeed.initialize
  bool clips = true;
  bool clones_first = false;  // masters of stage 3 are made by way of a 16-bit copy, not of one in their own dtype
  DType dtype = DType::bf16;  // of the model: bf16, or fp16 with its search for infinite gradients
};

// overlap_comm, or what "auto" comes to.
bool overlaps_communication(const Recipe& recipe);

// `hidden`: the model's hidden size, from which Trainer makes the sizes that say "auto".
ZeroOptions zero_options(const Recipe& recipe, std::uint64_t hidden, DType dtype);

// One optimizer over a list of flat partitions, which keep their gradients in .grad(); a new one by MakeStep.
using PartitionStep = std::function<void(const std::vector<Tensor>& partitions)>;
using MakeStep = std::function<PartitionStep()>;

class Zero {
 public:
  virtual ~Zero() = default;
  virtual ParameterUnits* units() { return nullptr; }           // who makes the model's parameters, if anybody
  virtual void wrap(const std::vector<Tensor>& trainable) = 0;  // deepspeed.initialize, once the model is made
  virtual void begin_forward() {}
  virtual void begin_backward(bool boundary) = 0;  // boundary: the last micro-batch of a step
  virtual void end_backward() = 0;
  virtual void step() = 0;
};

std::unique_ptr<Zero> make_zero(Tape& tape, const ZeroOptions& options, const MakeStep& make_step);
std::unique_ptr<Zero> make_zero12(Tape& tape, const ZeroOptions& options, const MakeStep& make_step);  // zero12.cc
std::unique_ptr<Zero> make_zero3(Tape& tape, const ZeroOptions& options, const MakeStep& make_step);   // zero3.cc

namespace zero {

// Hugging Face's Trainer gives its optimizer two groups, parameters with weight decay and without.
// Source: transformers trainer.py, get_decay_parameter_names.
std::vector<std::vector<std::size_t>> parameter_groups(const std::vector<Tensor>& parameters);

// Master weights, their gradients and moments: fp32, where the model is not fp64.
DType master_dtype(DType model);

// get_grad_norm_direct: each gradient's norm by way of an fp64 copy, and that of all ranks' together.
Tensor norm_of(Tape& tape, const std::vector<Tensor>& gradients);
Tensor global_norm(Tape& tape, const std::vector<Tensor>& norms);  // of the groups' norms; empty where there are none
void check_finite(const Tensor& gradient);                         // _has_inf_or_nan
// `norm`: of all gradients; empty where nothing is clipped.
void unscale_and_clip(Tape& tape, const Tensor& gradient, const Tensor& norm);

}  // namespace zero
}  // namespace ledger
