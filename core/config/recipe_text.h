// recipe_text.h - a recipe value as it stands in a flag or a URL, turned into the JSON value it means.
#pragma once

#include <optional>
#include <string_view>

#include "core/base/json.h"
#include "core/config/recipe.h"

namespace ledger {

// Nothing when the text cannot be a value of the key's kind at all; ranges and spellings are left to the key's reader.
std::optional<Json> recipe_json_from_text(const RecipeKey& key, std::string_view text);

}  // namespace ledger
