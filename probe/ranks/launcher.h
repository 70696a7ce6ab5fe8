// launcher.h - which rank this process is, as the program that started it says: torchrun, Open MPI, MPICH (and what
// else speaks its PMI), SLURM. Nothing of them is linked; they set environment variables.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace ledger {

struct RankPlace {
  std::uint64_t rank = 0, world = 1;
  std::uint64_t local_rank = 0, local_world = 0;  // on this machine; 0: not told
  std::string launcher = "single";
  std::string address;     // where rank 0 listens
  std::uint16_t port = 0;  // 0 where there is one rank
  bool one_machine = true;
};

struct FoundPlace {
  RankPlace place;
  std::string error;  // one sentence: variables that are missing, or contradict each other
};

// `variable` as std::getenv.
FoundPlace find_place(const std::function<const char*(const char*)>& variable);

// The first host of a SLURM node list, "node[07-12,20],other3": "node07".
std::string first_host(const std::string& list);

}  // namespace ledger
