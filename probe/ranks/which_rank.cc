#include "probe/ranks/which_rank.h"

#include <cstdlib>

namespace ledger {
namespace {

constexpr std::uint64_t kMostRanksToCompare = 1024;

std::string count(std::uint64_t ranks) {
  return ranks == 1 ? "one rank" : std::to_string(ranks) + " ranks";
}

// "dp 4", or with more axes "dp 2, tp 2".
std::string axes(const Recipe& recipe) {
  std::string text = "dp " + std::to_string(recipe.dp);
  if (recipe.tp != 1) text += ", tp " + std::to_string(recipe.tp);
  if (recipe.cp != 1) text += ", cp " + std::to_string(recipe.cp);
  if (recipe.pp != 1) text += ", pp " + std::to_string(recipe.pp);
  return text;
}

RankChoice refused(const std::string& error) {
  RankChoice choice;
  choice.error = error;
  return choice;
}

RankChoice in_place_of(std::uint64_t rank, std::uint64_t world) {
  RankChoice choice;
  choice.place.rank = rank;
  choice.place.world = world;
  choice.stand_in = true;
  return choice;
}

}  // namespace

bool name_file_after_rank(std::string& path, const RankChoice& choice) {
  const std::size_t mark = path.find("%r");
  if (mark == std::string::npos) return false;
  path.replace(mark, 2, std::to_string(choice.place.rank));
  return true;
}

std::uint64_t world_of(const Recipe& recipe) {
  return times(times(recipe.dp, recipe.tp), times(recipe.pp, recipe.cp));
}

RankChoice stand_in_for(const std::string& as_rank, const Recipe& recipe,
                        const std::function<Bytes(std::uint64_t rank)>& peak_of) {
  const std::uint64_t world = world_of(recipe);
  if (as_rank == "worst") {
    if (world > kMostRanksToCompare)
      return refused("--as-rank worst compares up to " + count(kMostRanksToCompare) + ", and this recipe has " +
                     count(world) + ": name one, as in --as-rank 0/" + std::to_string(world));
    std::uint64_t worst = 0;
    Bytes most = 0;
    for (std::uint64_t rank = 0; rank < world; ++rank) {
      const Bytes peak = peak_of(rank);
      if (peak > most) worst = rank;
      most = std::max(most, peak);
    }
    return in_place_of(worst, world);
  }
  char* end = nullptr;
  const unsigned long long rank = std::strtoull(as_rank.c_str(), &end, 10);
  if (as_rank.empty() || as_rank[0] < '0' || as_rank[0] > '9' || *end != '/')
    return refused("--as-rank takes a rank and how many there are, such as 3/8, or worst; not '" + as_rank + "'");
  const char* const second = end + 1;
  const unsigned long long of = std::strtoull(second, &end, 10);
  if (*second < '0' || *second > '9' || *end != '\0' || rank >= of)
    return refused("--as-rank " + as_rank + " is no rank: they are counted from 0");
  if (of != world)
    return refused("--as-rank " + as_rank + ", but this recipe has " + count(world) + " (" + axes(recipe) + ")");
  return in_place_of(rank, world);
}

RankChoice launched_rank(const Recipe& recipe, const std::function<const char*(const char*)>& variable) {
  const std::uint64_t world = world_of(recipe);
  FoundPlace found = find_place(variable);
  if (!found.error.empty()) return refused(found.error);
  RankChoice choice;
  choice.place = std::move(found.place);
  if (choice.place.world == 1 && world == 1) return choice;
  if (choice.place.world == world) return choice;
  if (choice.place.world == 1)
    return refused("this recipe has " + count(world) + " and this is one process: start it as torchrun --no-python " +
                   "--nproc_per_node=" + std::to_string(world) +
                   " probe ... (or with mpirun, srun), stand in for one " + "rank with --as-rank 0/" +
                   std::to_string(world) + ", or predict with --dry-run");
  return refused(choice.place.launcher + " started " + count(choice.place.world) + " and this recipe has " +
                 count(world) + " (" + axes(recipe) + ")");
}

}  // namespace ledger
