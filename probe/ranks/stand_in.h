// stand_in.h - one process in the place of one rank of many: what others would send is a copy of its own.
//
// Memory is as true as with all ranks there; numbers are not, unless it is the only rank.
#pragma once

#include "probe/ranks/communicator.h"

namespace ledger {

class StandIn : public Communicator {
 public:
  StandIn(std::uint64_t rank, std::uint64_t world) : Communicator(rank, world) {}

  bool all_gather(const RankBuffer& whole) override;
  bool all_reduce(const RankBuffer&, ReduceOp) override { return true; }
  bool reduce_scatter(const RankBuffer& whole, const RankBuffer& part, ReduceOp) override;
  bool broadcast(const RankBuffer&, std::uint64_t) override { return true; }
  bool all_to_all(const RankBuffer& out, const RankBuffer& in) override;
  bool send(const RankBuffer&, std::uint64_t, std::uint32_t) override { return true; }
  bool receive(const RankBuffer& buffer, std::uint64_t from, std::uint32_t tag) override;
  std::unique_ptr<Communicator> among(const std::vector<std::uint64_t>& members) override {
    return std::make_unique<StandIn>(place_among(members, rank()), members.size());
  }
  void abort(const std::string& why) override { fail(why); }
};

}  // namespace ledger
