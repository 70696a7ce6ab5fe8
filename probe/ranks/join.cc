#include "probe/ranks/join.h"

#include <limits>
#include <utility>

#include "probe/ranks/host_communicator.h"
#include "probe/ranks/stand_in.h"

namespace ledger {
namespace {

std::string why_ended(const RanksOfRun& ranks, const MeasuredResult& result) {
  const std::string who = "rank " + std::to_string(ranks.place.rank);
  if (result.failure) return who + " stopped: " + result.failure->what;
  return result.status == RunStatus::out_of_memory ? who + " ran out of memory" : who + " ended before the run did";
}

}  // namespace

Joined join_ranks(const RankChoice& choice, const Plan& plan, double timeout_s) {
  Joined joined;
  const RankPlace& place = choice.place;
  if (choice.stand_in || place.world == 1) {
    joined.ranks = std::make_unique<StandIn>(place.rank, place.world);
    return joined;
  }
  Meeting meeting = meet(place, plan, timeout_s);
  if (meeting.error.empty()) {
    joined.ranks = std::make_unique<HostCommunicator>(place.rank, std::move(meeting.peers), timeout_s);
    return joined;
  }
  joined.code = meeting.disagreement ? kUsage : kRankLost;
  joined.error = meeting.error;
  return joined;
}

RanksOfRun leave_ranks(Communicator& ranks, const RankChoice& choice, const Prediction& prediction,
                       MeasuredResult& result, std::optional<Bytes> nccl_bytes) {
  RanksOfRun all{choice.place, choice.stand_in, {}};
  if (choice.place.world == 1) return all;
  if (choice.stand_in) {  // numbers made of copies mean nothing
    for (double& loss : result.losses)
      loss = std::numeric_limits<double>::quiet_NaN();
    return all;
  }
  if (result.status != RunStatus::ok) {
    ranks.abort(why_ended(all, result));
    return all;
  }
  if (!gather_results(ranks, peaks_of(prediction, result.replay, nccl_bytes), all.peaks, result.losses)) {
    all.peaks.clear();
    result.status = RunStatus::error;
    result.failure = RunFailure{ranks.failure(), 0, kNoStorage};
  }
  return all;
}

}  // namespace ledger
