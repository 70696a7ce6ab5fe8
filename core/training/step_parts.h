// step_parts.h - what the loop of a plain script and that of a pipeline have in common: a recipe as the model and
// whoever shards it are told it.
#pragma once

#include <vector>

#include "core/models/model.h"
#include "core/parallel/fsdp1.h"
#include "core/parallel/fsdp2.h"
#include "core/training/step.h"

namespace ledger {

ModelOptions model_options(const Recipe& recipe, const TraceOptions& options);
Fsdp1::Options fsdp1_options(const Recipe& recipe, const TraceOptions& options);
Fsdp2::Options fsdp2_options(const ModelConfig& config, const Recipe& recipe, const TraceOptions& options);

// Gradients of what tensor parallelism does not cut are sums over this rank's tokens: DTensor's operators make them
// whole where they are used. (FSDP does it before it reduces them.)
void sum_partial_gradients(const std::vector<Tensor>& parameters);

}  // namespace ledger
