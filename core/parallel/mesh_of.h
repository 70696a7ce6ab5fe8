// mesh_of.h - the ranks that a recipe is for.
#pragma once

#include "core/config/recipe.h"
#include "core/trace/mesh.h"

namespace ledger {

// expert_tensor_parallel_size is that of tensor parallelism where nothing else is said.
inline std::uint64_t expert_tensor_ranks(const Recipe& recipe) {
  return recipe.etp == 0 ? recipe.tp : recipe.etp;
}

inline Mesh mesh_of(const Recipe& recipe) {
  return {{recipe.tp, recipe.cp, recipe.dp, recipe.pp}, expert_tensor_ranks(recipe), recipe.ep};
}

}  // namespace ledger
