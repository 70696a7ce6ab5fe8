// rank_groups.h - the groups of ranks that a trace's collectives are among.
#pragma once

#include <map>
#include <memory>

#include "core/trace/trace.h"
#include "probe/ranks/communicator.h"
#include "probe/ranks/shard_moves.h"

namespace ledger {

// Where the rank of `seat` sits in its group; a trace without a mesh has one group, of all.
inline RankSeat seat_among(const Mesh& mesh, RankSeat seat, RankGroup group) {
  if (mesh.world() == 1 || group == RankGroup::everyone) return seat;
  const std::vector<std::uint64_t> members = mesh.members(seat.rank, group);
  return {place_among(members, seat.rank), members.size()};
}

class RankGroups {
 public:
  RankGroups(const Mesh& mesh, Communicator& all) : mesh_(mesh), all_(all) {}

  Communicator& of(RankGroup group) {
    if (mesh_.world() == 1 || group == RankGroup::everyone) return all_;
    std::unique_ptr<Communicator>& ranks = groups_[group];
    if (ranks == nullptr) ranks = all_.among(mesh_.members(all_.rank(), group));
    return *ranks;
  }

 private:
  const Mesh& mesh_;
  Communicator& all_;
  std::map<RankGroup, std::unique_ptr<Communicator>> groups_;
};

}  // namespace ledger
