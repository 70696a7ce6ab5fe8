// mesh_of.h - the ranks that a recipe is for.
#pragma once

#include "core/config/recipe.h"
#include "core/trace/mesh.h"

namespace ledger {

inline Mesh mesh_of(const Recipe& recipe) {
  return {{recipe.tp, recipe.cp, recipe.dp, recipe.pp}};
}

}  // namespace ledger
