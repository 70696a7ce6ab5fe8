#include "probe/check.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace ledger {

std::string check_of(const Prediction& predicted, const MeasuredResult& run, double percent, bool stand_in) {
  if (!stand_in && !std::all_of(run.losses.begin(), run.losses.end(), [](double loss) { return std::isfinite(loss); }))
    return "the loss is not a finite number.";
  const auto expected = static_cast<double>(predicted.replay.peak_allocated_bytes);
  const auto measured = static_cast<double>(run.replay.peak_allocated_bytes);
  const double off = std::fabs(measured - expected) * 100 / expected;
  if (off <= percent) return "";
  char text[128];
  std::snprintf(text, sizeof text, "the measured peak of allocated bytes is %.2f %% %s the predicted one.", off,
                measured > expected ? "above" : "below");
  return text;
}

}  // namespace ledger
