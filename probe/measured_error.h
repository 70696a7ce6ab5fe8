// measured_error.h - what the measured file says of a run that came to no good end.
#pragma once

#include "core/base/json.h"
#include "probe/measured.h"

namespace ledger {

// The member "error"; null where all went well.
void write_error(JsonWriter& out, const MeasuredRun& measured);

}  // namespace ledger
