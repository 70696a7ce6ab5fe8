// remarks.h - what a report says beside its numbers: what they leave out, and what a recipe does otherwise than it
// seems to.
#pragma once

#include "core/answer/prediction.h"
#include "core/base/json.h"

namespace ledger {

// The members "not_modelled" and "notes" of a report.
void write_remarks(JsonWriter& out, const Prediction& prediction);

}  // namespace ledger
