// rope_keys.h - rotary embedding in config.json: its base, how much of a head it turns, and its scaling.
#pragma once

#include "core/config/fields.h"
#include "core/config/model_config.h"

namespace ledger {

void read_rope(Fields& fields, ModelConfig& config);

}  // namespace ledger
