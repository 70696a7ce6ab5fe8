// decoder_keys.h - the keys of a decoder's config.json, whichever family's.
#pragma once

#include <optional>
#include <string_view>

#include "core/base/json.h"
#include "core/base/problem.h"
#include "core/config/families.h"

namespace ledger {

// `root` read as `family`; null where the family's class treats it as a value.
Result<ModelConfig> read_decoder(const Json& root, const Family& family);

// A nested configuration (text_config), whose class is `fallback` where it names none.
Result<ModelConfig> read_text_config(const Json& root, const char* fallback);

// An activation function by its name in transformers' table; nothing for one that core/models does not build.
std::optional<Act> activation_named(std::string_view name);

// hidden_act (or another key that names an activation), by the names of transformers' table.
void read_activation(Fields& fields, Act& act, const char* key = "hidden_activation");

}  // namespace ledger
