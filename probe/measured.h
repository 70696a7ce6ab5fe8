// measured.h - a run as the measured JSON of docs/file-formats.md.
#pragma once

#include <string>

#include "core/answer/prediction.h"
#include "probe/device_run.h"

namespace ledger {

struct RanksOfRun;

struct MeasuredRun {
  const Prediction* prediction = nullptr;  // of the same trace; its trace is what ran
  const MeasuredResult* run = nullptr;
  std::uint32_t steps = 0;
  std::uint32_t warmup = 0;
  const DeviceRun* device = nullptr;  // the same run, where it was on a GPU; null on the host
  const RanksOfRun* ranks = nullptr;  // which rank of how many it was; null: the only one
};

// Every event, address and sample agreed.
bool identical(const Replay& predicted, const Replay& measured);

std::string write_measured(const MeasuredRun& measured);

}  // namespace ledger
