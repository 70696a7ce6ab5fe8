// mesh_of.h - the ranks that a recipe is for.
#pragma once

#include "core/base/bytes.h"
#include "core/config/recipe.h"
#include "core/trace/mesh.h"

namespace ledger {

// expert_tensor_parallel_size is that of tensor parallelism where nothing else is said.
inline std::uint64_t expert_tensor_ranks(const Recipe& recipe) {
  return recipe.etp == 0 ? recipe.tp : recipe.etp;
}

// Of the ranks that share a sequence, neighbours that exchange heads for tokens.
inline std::uint64_t exchanging_ranks(const Recipe& recipe) {
  if (recipe.cp == 1) return 1;
  if (recipe.cp_comm_type == CpComm::a2a) return recipe.cp;
  return recipe.cp_comm_type == CpComm::a2a_p2p ? recipe.cp_a2a_ranks : 1;
}

inline Mesh mesh_of(const Recipe& recipe) {
  return {
      {recipe.tp, recipe.cp, recipe.dp, recipe.pp}, expert_tensor_ranks(recipe), recipe.ep, exchanging_ranks(recipe)};
}

// The rank to ask what a rank needs at most. Of those that share a sequence the last has partial results of all
// queries; where keys are gathered for each of a rank's two pieces alone, the first has the piece that sees them all.
inline std::uint64_t rank_with_most(const Recipe& recipe) {
  const bool gathered = recipe.stack == Stack::megatron && recipe.cp_comm_type == CpComm::all_gather;
  return gathered ? 0 : times(recipe.tp, recipe.cp - 1);
}

}  // namespace ledger
