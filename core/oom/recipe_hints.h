// recipe_hints.h - keys of a recipe that an error text gives away: the method, ZeRO's stage, a batch size.
#pragma once

#include <string>
#include <vector>

#include "core/oom/squash.h"

namespace ledger::oom {

struct RecipeHint {
  const char* key;    // of the recipe
  std::string value;  // as a flag of the probe takes it
  std::string quote;
};

std::vector<RecipeHint> recipe_hints(const Squashed& text);

}  // namespace ledger::oom
