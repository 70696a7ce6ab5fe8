// vision_towers.h - the image encoders of vision-language models: their parameters, and the defaults of their classes.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/config/fields.h"

namespace ledger {

struct Tower {
  std::string_view model_type;
  std::uint64_t (*count)(Fields& fields);
  const char* defaults;  // JSON, as families.cc has the decoders'
};

const Tower* find_tower(std::string_view model_type);  // nullptr when unknown

}  // namespace ledger
