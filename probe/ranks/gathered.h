// gathered.h - what all ranks of a run must have in common before it, and tell each other after it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/answer/prediction.h"
#include "probe/measured_result.h"
#include "probe/ranks/communicator.h"
#include "probe/ranks/rendezvous.h"

namespace ledger {

// Version, steps, model and every key of the recipe.
Plan plan_of(const Prediction& prediction, std::uint32_t steps);

struct RankPeaks {
  Bytes tensor_bytes = 0, workspace_bytes = 0, allocated_bytes = 0, reserved_bytes = 0;
  Bytes predicted_allocated_bytes = 0;
  bool events_identical = false;
  std::optional<Bytes> nccl_bytes;  // what NCCL took of its GPU; none on the host
};

// The ranks of a run, as files and tables tell them.
struct RanksOfRun {
  RankPlace place;
  bool stand_in = false;
  std::vector<RankPeaks> peaks;  // by rank; empty where there is one process, or a rank was lost

  std::uint64_t worst() const;  // the rank that allocated most, first of equals
};

RankPeaks peaks_of(const Prediction& prediction, const Replay& measured, std::optional<Bytes> nccl_bytes = {});

// Every rank's peaks, and in `losses` the mean over ranks. False when a rank was lost meanwhile.
bool gather_results(Communicator& ranks, const RankPeaks& own, std::vector<RankPeaks>& all,
                    std::vector<double>& losses);

// The text that rank `from` has, on rank 0 in its place; the others' stays.
bool fetch_text(Communicator& ranks, std::uint64_t from, std::string& text);

}  // namespace ledger
