// families.h - the known model_types: one row each, with the defaults of its configuration class.
//
// config.json leaves out keys that equal the class's defaults (transformers PretrainedConfig.to_diff_dict), so the
// defaults are part of the format: each row has them as a JSON object, read exactly as if the file held them. A new
// family is a row here, a fixture in tests/fixtures/configs/ and, for its step, a style that core/models builds.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/config/fields.h"
#include "core/config/model_config.h"

namespace ledger {

struct Family {
  const char* model_type;  // in config.json
  Style style;             // of a decoder
  const char* defaults;    // JSON: what the configuration class assumes for absent keys
  const char* source;      // the configuration class
  // Families that are no decoder by themselves: reads the parameters they have and what of sizes the report shows.
  void (*count)(Fields& fields, ModelConfig& config) = nullptr;
};

std::span<const Family> families();
const Family* find_family(std::string_view model_type);  // nullptr when unknown

// Other spellings of a key, in older files and other classes.
std::span<const KeyAlias> key_aliases();

// The known model_types as Problem::expected wants them, "llama|...", and the one most like `model_type`.
std::string family_names();
std::string nearest_family(std::string_view model_type);

}  // namespace ledger
