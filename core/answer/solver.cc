// solver.cc - the largest number that fits and the smallest card, by running the recipe with candidates (advice.h).

#include <algorithm>
#include <vector>

#include "core/answer/advice.h"
#include "core/base/order.h"
#include "core/training/support.h"

namespace ledger {
namespace {

std::uint64_t most_of(const char* key) {
  for (const RecipeKey& row : recipe_keys()) {
    if (std::string_view(row.name) == key) return row.high;
  }
  return 1;
}

// A number under trial. What overflows 64 bits fits nowhere, and beyond what is traced nothing is known; any other
// problem is the recipe's own.
class Trial {
 public:
  Trial(const ModelConfig& config, const Recipe& recipe, std::uint64_t Recipe::*key)
      : config_(config), recipe_(recipe), key_(key) {}

  bool fits(std::uint64_t value) {
    recipe_.*key_ = value;
    const Result<Weighed> weighed = weigh(config_, recipe_);
    spare_ = weighed.ok() ? std::optional(weighed.value().spare_bytes) : std::nullopt;
    if (!weighed.ok()) {
      const ProblemCode code = weighed.problem().code;
      if (code == ProblemCode::too_large_to_trace && best_) {
        untraced_ = std::min(untraced_, value);
      } else if (code != ProblemCode::overflow) {
        problem_ = weighed.problem();
      }
      return false;
    }
    if (weighed.value().answer != Answer::fits) return false;
    best_ = weighed.value();
    return true;
  }

  const std::optional<Problem>& problem() const { return problem_; }
  const std::optional<Weighed>& best() const { return best_; }
  const std::optional<std::int64_t>& spare() const { return spare_; }  // of the last value
  std::uint64_t untraced() const { return untraced_; }                 // the least number that is too large to trace

 private:
  const ModelConfig& config_;
  Recipe recipe_;
  std::uint64_t Recipe::*key_;
  std::optional<Problem> problem_;
  std::optional<Weighed> best_;
  std::optional<std::int64_t> spare_;
  std::uint64_t untraced_ = ~std::uint64_t{0};
};

// A number that fits and one that does not, with the bytes that each leaves to spare, where known.
struct Bracket {
  std::uint64_t low, high;
  std::optional<std::int64_t> low_spare, high_spare;

  void narrow(Trial& trial, std::uint64_t value) {
    const bool fits = trial.fits(value);
    (fits ? low : high) = value;
    (fits ? low_spare : high_spare) = trial.spare();
  }
  // Bytes grow almost in proportion with batch and sequence: the number lies where the line through both ends has none
  // to spare.
  std::uint64_t guess() const {
    const std::uint64_t width = high - low;
    if (!low_spare || !high_spare || *low_spare < 0 || *high_spare >= 0) return low + width / 2;
    const double share =
        static_cast<double>(*low_spare) / (static_cast<double>(*low_spare) - static_cast<double>(*high_spare));
    return std::clamp(low + static_cast<std::uint64_t>(share * static_cast<double>(width)), low + 1, high - 1);
  }
};

// Doubles from `from` until it no longer fits (or halves the way down from it), then closes the gap: ends with a number
// that fits beside one that does not. Calls with a number that fits come in rising order, so that the last is the best.
// `least` is the smallest that has a meaning.
std::uint64_t largest(Trial& trial, std::uint64_t from, std::uint64_t least, std::uint64_t most) {
  Bracket bracket{0, most + 1, {}, {}};
  if (trial.fits(least)) bracket = {least, most + 1, trial.spare(), {}};
  if (bracket.low == 0 || trial.problem()) return 0;
  for (std::uint64_t next = std::clamp<std::uint64_t>(from, least + 1, most); next < bracket.high && next > bracket.low;
       next = std::min(2 * bracket.low, most)) {
    bracket.narrow(trial, next);
    if (bracket.low == most) return most;
    if (bracket.high == next) break;
  }
  for (bool halve = false; bracket.high - bracket.low > 1;) {
    const std::uint64_t width = bracket.high - bracket.low;
    bracket.narrow(trial, halve ? bracket.low + width / 2 : bracket.guess());
    halve = bracket.high - bracket.low > width / 2;  // where a guess leaves most of the gap, the next step halves it
  }
  return bracket.low;
}

Result<Solution> largest_number(const ModelConfig& config, const Recipe& recipe, const char* name,
                                std::uint64_t Recipe::*key) {
  Trial trial(config, recipe, key);
  const std::uint64_t most = most_of(name);
  Solution solution;
  const std::uint64_t least = key == &Recipe::seq ? least_sequence(config, recipe) : 1;
  solution.value = largest(trial, recipe.*key, std::min(least, most - 1), most);
  if (trial.problem()) return *trial.problem();
  solution.at_limit = solution.value == most || solution.value + 1 == trial.untraced();
  if (solution.value != 0) solution.after = trial.best();
  return solution;
}

bool smaller(const Gpu* const& a, const Gpu* const& b) {
  return a->usable_bytes < b->usable_bytes;
}

// The recipe's own limit is left out: cards are asked about with all that they have.
Result<Solution> smallest_card(const ModelConfig& config, Recipe recipe) {
  recipe.memory_limit_bytes = 0;
  const Result<Weighed> here = weigh(config, recipe);
  if (!here.ok()) return here.problem();
  std::vector<const Gpu*> cards;
  for (const Gpu& card : gpus())
    cards.push_back(&card);
  sort_stably<const Gpu*, smaller>(cards);
  constexpr Bytes kWorkspaces = 128 * kMiB;  // cards differ in their libraries' workspaces by less
  for (const Gpu* card : cards) {
    if (plus(card->usable_bytes, kWorkspaces) < here.value().allocated_bytes) continue;
    recipe.gpu = card->id;
    const Result<Weighed> weighed = weigh(config, recipe);
    if (!weighed.ok() || weighed.value().answer != Answer::fits) continue;
    Solution solution;
    solution.gpu = card;
    solution.after = weighed.value();
    return solution;
  }
  return Solution{};
}

}  // namespace

Result<Solution> solve(const ModelConfig& config, const Recipe& recipe, Unknown unknown) {
  switch (unknown) {
    case Unknown::batch:
      return largest_number(config, recipe, "batch", &Recipe::batch);
    case Unknown::seq:
      return largest_number(config, recipe, "seq", &Recipe::seq);
    case Unknown::gpu:
      break;
  }
  return smallest_card(config, recipe);
}

}  // namespace ledger
