// vision_towers.h - the image encoders of vision-language models: their parameters, and the defaults of their classes.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/config/fields.h"
#include "core/config/model_config.h"

namespace ledger {

struct Tower {
  std::string_view model_type;
  std::uint64_t (*count)(Fields& fields);
  const char* defaults;  // JSON, as families.cc has the decoders'
  // The sizes and whatever else the modules of core/models need; false where those do not build it.
  bool (*read)(Fields& fields, VisionConfig& config);
};

// Of an encoder of ViT's kind, as Tower::read.
bool read_image_encoder(Fields& fields, VisionConfig& config);

const Tower* find_tower(std::string_view model_type);  // nullptr when unknown

}  // namespace ledger
