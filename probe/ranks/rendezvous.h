// rendezvous.h - the ranks of a run find each other: rank 0 listens, the others call it, and when all have come and
// mean the same run, each is connected with each.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "probe/ranks/launcher.h"
#include "probe/ranks/sockets.h"

namespace ledger {

// What all ranks must agree on, as names and values: {"recipe key seq", "4096"}.
using Plan = std::vector<std::pair<std::string, std::string>>;

// In words what differs first; empty when nothing does. `rank` has `other`, rank 0 has `plan`.
std::string difference(const Plan& plan, const Plan& other, std::uint64_t rank);

struct Meeting {
  std::vector<Socket> peers;  // by rank; that of this rank itself is empty
  std::string error;          // one sentence
  bool disagreement = false;  // they came, and do not mean the same run
};

Meeting meet(const RankPlace& place, const Plan& plan, double timeout_s);

}  // namespace ledger
