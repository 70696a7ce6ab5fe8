// compared_timeline.h - the memory that a run had from event to event, laid over the prediction's own timeline.
#pragma once

#include <optional>

#include "core/answer/prediction.h"
#include "core/base/json.h"

namespace ledger {

// Writes `timeline`, the prediction's as in a report, and `measured_points`: what `measured` (its member "timeline")
// had allocated and reserved, each at the event of the prediction that it belongs to: the same one in runs of one
// trace, elsewhere the one as far into the phase. Points of phases that the prediction does not have at that place are
// left out. Writes nothing, and finds no problem, where the file has no timeline or one without phases. Problems:
// wrong_type, with the place.
std::optional<Problem> write_compared_timeline(JsonWriter& out, const Json* measured, const Prediction& prediction);

}  // namespace ledger
