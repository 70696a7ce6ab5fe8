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

// The first that applies, as a Problem.
std::optional<Problem> first_of(std::span<const Refusal> refusals, const ModelConfig& config, const Recipe& recipe);

// What a stack's own modules do not know, of recipes that are computed otherwise.
std::optional<Problem> unsupported_in_torchtune(const ModelConfig& config, const Recipe& recipe);
std::optional<Problem> unsupported_in_native(const ModelConfig& config, const Recipe& recipe);
std::optional<Problem> unsupported_in_torchtitan(const ModelConfig& config, const Recipe& recipe);

}  // namespace ledger
