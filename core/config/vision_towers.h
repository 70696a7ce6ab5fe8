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
  bool traced = false;   // core/models builds and runs it
};

// The sizes of an encoder of ViT's kind, and whatever else its modules need; false where those do not build it.
bool read_image_encoder(Fields& fields, VisionConfig& config);

const Tower* find_tower(std::string_view model_type);  // nullptr when unknown

}  // namespace ledger
