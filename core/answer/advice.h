// advice.h - what would help: single changes of a recipe that lower its peak, and the most that fits a card. Nothing is
// estimated: each answer is the recipe run again with one thing changed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/answer/prediction.h"

namespace ledger {

struct Change {
  const char* id;  // texts of pages are found by it
  Recipe recipe;   // changed
  Weighed after;
};

struct Advice {
  Weighed before;
  std::vector<Change> changes;  // most allocated bytes saved first; what is refused or saves nothing is left out
};
Result<Advice> advise(const ModelConfig& config, const Recipe& recipe);

// Every change that is tried, for documents and tests.
std::vector<const char*> change_ids();

enum class Unknown : std::uint8_t { batch, seq, gpu };

// The largest batch or sequence with the verdict "fits", its next one having another; or the smallest card. Empty when
// not even 1 fits, or no card is large enough.
struct Solution {
  std::uint64_t value = 0;   // of batch or seq; 0: nothing fits
  const Gpu* gpu = nullptr;  // of gpu
  bool at_limit = false;     // the key allows no more, or more is not traced
  std::optional<Weighed> after;
};
Result<Solution> solve(const ModelConfig& config, const Recipe& recipe, Unknown unknown);

std::string write_advice(const Advice& advice);
std::string write_solution(const Solution& solution, Unknown unknown);

}  // namespace ledger
