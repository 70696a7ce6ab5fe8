// ranks_check.h - NCCL on real GPUs: collectives against the host's, and what it takes of the device.
#pragma once

#include "core/base/json.h"

namespace ledger {

// As one of the ranks that a launcher started, or alone. Writes members of an object; whether all is as it should be.
bool check_ranks(JsonWriter& out, unsigned seed);

}  // namespace ledger
