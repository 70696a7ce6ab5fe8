// sources.h - where each kind of ledger line comes from: the file of the framework whose behaviour it reproduces.
#pragma once

#include <string_view>

#include "core/config/recipe.h"
#include "core/trace/trace.h"

namespace ledger {

const char* source_of(std::string_view name, Category category, OpKind op, const Recipe& recipe);

}  // namespace ledger
