// finish.h - how a run is limited, and how it ends: its file, its table, its exit code and sentence.
#pragma once

#include <string>

#include "core/answer/prediction.h"
#include "probe/device_run.h"
#include "probe/flags.h"
#include "probe/ranks/join.h"
#include "probe/run_limits.h"

namespace ledger {

// Writes a document where --json says, and prints the table.
int emit(const Flags& flags, const std::string& json, const std::string& table);

// Writes file and table, and says how it ended. The file that rank 0 writes is that of the rank which allocated most.
// `device`: the same run, where a GPU computed it.
int finish_run(Flags flags, const Prediction& p, MeasuredResult& run, const DeviceRun* device, Communicator& ranks,
               const RankChoice& choice);

// Time, and signals: the first one ends the run between two operators.
RunLimits limits_of(const Flags& flags);

// Writes what there is and ends the program, from a thread beside the one that does not come back; other ranks learn of
// it by this one's end.
[[noreturn]] void leave(const Flags& flags, const Prediction& p, MeasuredResult run, const DeviceRun* device,
                        const RankChoice& choice);

}  // namespace ledger
