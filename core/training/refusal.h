// refusal.h - tables of what is refused, and why.
#pragma once

#include <optional>
#include <span>

#include "core/config/model_config.h"
#include "core/config/recipe.h"

namespace ledger {

struct Refusal {
  const char* key;
  const char* reason;  // id; web and probe say it in words
  bool (*applies)(const ModelConfig&, const Recipe&);
};

inline bool divides(std::uint64_t parts, std::uint64_t whole) {
  return parts != 0 && whole % parts == 0;
}

inline bool sets_recompute(const Recipe& r) {
  const Recipe plain;
  return r.recompute_method != plain.recompute_method || r.recompute_num_layers != plain.recompute_num_layers;
}

inline bool sets_stages(const Recipe& r) {
  return r.decoder_first_pipeline_num_layers != 0 || r.decoder_last_pipeline_num_layers != 0;
}

inline bool sets_chunks(const Recipe& r) {
  return r.num_layers_per_virtual_pipeline_stage != 1;
}

// The first that applies, as a Problem.
std::optional<Problem> first_of(std::span<const Refusal> refusals, const ModelConfig& config, const Recipe& recipe);

// What a stack's own modules do not know, of recipes that are computed otherwise.
std::optional<Problem> unsupported_in_torchtune(const ModelConfig& config, const Recipe& recipe);
std::optional<Problem> unsupported_in_native(const ModelConfig& config, const Recipe& recipe);
std::optional<Problem> unsupported_in_torchtitan(const ModelConfig& config, const Recipe& recipe);

}  // namespace ledger
