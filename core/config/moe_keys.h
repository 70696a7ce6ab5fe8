// moe_keys.h - experts in config.json: how many, how wide, and in which layers.
#pragma once

#include "core/config/fields.h"
#include "core/config/model_config.h"

namespace ledger {

void read_moe(Fields& fields, ModelConfig& config);

}  // namespace ledger
