// check.h - --check: whether a run is as near to its prediction as was asked.
#pragma once

#include <string>

#include "core/answer/prediction.h"
#include "probe/measured_result.h"

namespace ledger {

// What is wrong, as a sentence: allocated peaks further apart than `percent`, or a loss that is no number. "" if
// nothing is. stand_in: one process in the place of a rank, whose losses mean nothing.
std::string check_of(const Prediction& predicted, const MeasuredResult& run, double percent, bool stand_in = false);

}  // namespace ledger
