// generate.h - a model that generates text: loading, the prompt at once (prefill), then one token after the other.
//
// The same modules as in training, run by the loop of transformers 5 generation/utils.py, GenerationMixin._sample, in
// its greedy form. Phases: load, prefill, decode1, decode2, ...; of many tokens only those are played at which
// something happens (traced_steps), and the phases `skipped2`, ... put the cache where the tokens between would have
// left it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/training/step.h"

namespace ledger {

// Of `options`, steps, lora_alpha, adamw and max_grad_norm have no meaning here. Problems as trace_step's.
Result<Trace> trace_generation(const ModelConfig& config, const Recipe& recipe, const TraceOptions& options = {});

// A recipe that cannot generate, or one that is not modelled, with the reason's id.
std::optional<Problem> unsupported_generation(const ModelConfig& config, const Recipe& recipe);

// Numbers of the decoding steps that are played, counted from 1 and rising. All of them when they are few or when each
// leaves its activations behind (no_grad false); else the first, the last at which a quantised cache quantises, and the
// very last, which has the longest cache.
std::vector<std::uint64_t> traced_steps(const Recipe& recipe, bool every_pass = false);

inline constexpr std::uint64_t kStepsPlayedInFull = 8;
inline constexpr const char* kSkippedPhase = "skipped";  // and the number of the first pass that is left out

}  // namespace ledger
