// step_time.h - how long one step of the stack `megatron` would take if every matrix product ran at the card's dense
// peak and every byte at its link's rate, nothing hidden behind anything else.
//
// Not a prediction of seconds: 31 published runs (tests/fixtures/step_times.json, docs/accuracy.md) took kSlowest to
// kFastest times this. It is for telling plans apart, whose errors are alike.
#pragma once

#include <optional>

#include "core/base/json.h"
#include "core/config/gpu.h"
#include "core/config/model_config.h"
#include "core/config/recipe.h"

namespace ledger {

// Measured seconds over ours, the quickest and the slowest of the published runs.
struct Bounds {
  double fastest, slowest;
};
constexpr double kFastest = 1.25, kSlowest = 2.6;

// GPUs of one machine, and what one GPU sends in a second, one way. Source: NVIDIA's data sheets of the cards (NVLink's
// total halved) and of the DGX A100, H100 and B200 machines (one network port a GPU); of others see step_time.cc.
struct Links {
  std::uint64_t gpus;
  double within_gb_per_s;
  double between_gb_per_s;
};
std::optional<Links> links_of(const Gpu& gpu);  // nullopt: not a card of such machines

// Of what each of a group of `ranks`, neighbours first, sends; a group that does not fit a machine goes at the
// network's rate.
double seconds_on(const Links& links, Bytes bytes, std::uint64_t ranks);

// Seconds of one step on the slowest stage, and the bytes that one of its GPUs sends.
struct StepTime {
  double compute = 0;   // matrix products and attention, recomputed ones too
  double tensor = 0;    // all-reduces within layers, and tokens on their way to experts and back
  double context = 0;   // keys and values to the other parts of the sequence
  double pipeline = 0;  // activations to the next stage, gradients back
  double bubble = 0;    // waiting while the pipeline fills and empties
  double data = 0;      // gradients to their shards, parameters back
  Bytes tensor_bytes = 0, context_bytes = 0, pipeline_bytes = 0, data_bytes = 0;

  double seconds() const { return compute + tensor + context + pipeline + bubble + data; }
};

// Parameters of all layers' routed experts.
std::uint64_t expert_parameters(const ModelConfig& config);

// `recipe`: one that the stack megatron computes. nullopt: the card's rates are not in the catalogue.
std::optional<StepTime> step_time(const ModelConfig& config, const Recipe& recipe);

void write_step_time(JsonWriter& out, const StepTime& time);

}  // namespace ledger
