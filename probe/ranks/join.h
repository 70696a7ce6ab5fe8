// join.h - a process becomes one of the ranks of a run, and takes its leave of them.
#pragma once

#include <memory>

#include "probe/exit.h"
#include "probe/measured_result.h"
#include "probe/ranks/communicator.h"
#include "probe/ranks/gathered.h"
#include "probe/ranks/which_rank.h"

namespace ledger {

struct Joined {
  std::unique_ptr<Communicator> ranks;  // null when it failed
  int code = kOk;
  std::string error;
};

// Waits for the others up to `timeout_s`; a stand-in waits for nobody.
Joined join_ranks(const RankChoice& choice, const Plan& plan, double timeout_s);

// After the run: gathers what all measured (`nccl_bytes` of this rank's GPU, none on the host), into `result` the
// losses' mean over ranks; or tells the others why it ended.
RanksOfRun leave_ranks(Communicator& ranks, const RankChoice& choice, const Prediction& prediction,
                       MeasuredResult& result, std::optional<Bytes> nccl_bytes);

}  // namespace ledger
