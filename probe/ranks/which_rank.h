// which_rank.h - which rank of how many this process is: a launcher's word, or the reader's (--as-rank).
#pragma once

#include <functional>
#include <string>

#include "core/answer/prediction.h"
#include "probe/ranks/launcher.h"

namespace ledger {

struct RankChoice {
  RankPlace place;
  bool stand_in = false;  // --as-rank: the others are not there
  std::string error;      // one sentence
};

// "out-%r.json" for rank 3 becomes "out-3.json"; false where it has no such mark.
bool name_file_after_rank(std::string& path, const RankChoice& choice);

// How many GPUs the recipe is for.
std::uint64_t world_of(const Recipe& recipe);

// Reads "3/8" or "worst" into a choice; `peak_of` predicts what a rank allocates at most.
RankChoice stand_in_for(const std::string& as_rank, const Recipe& recipe,
                        const std::function<Bytes(std::uint64_t rank)>& peak_of);

// The place that a launcher gave this process, held against the recipe; "" in `error` also where neither has ranks.
RankChoice launched_rank(const Recipe& recipe, const std::function<const char*(const char*)>& variable);

}  // namespace ledger
