// exit.h - how probe ends: its exit codes (docs/cli.md) and the one sentence on standard error.
#pragma once

#include <string>

namespace ledger {

enum Exit {
  kOk = 0,
  kInternal = 1,
  kUsage = 2,
  kOutOfMemory = 3,
  kCheckFailed = 4,
  kTimeOut = 5,
  kBusy = 6,
  kRankLost = 7,
  kNoGpu = 69,
  kSignal = 128,
};

// Prints "probe: <sentence>" and returns `code`.
int fail(int code, const std::string& sentence);

}  // namespace ledger
