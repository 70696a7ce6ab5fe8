// emulated_check.cc - what probe_gpu_check does about ranks (tests/gpu/ranks_check.cc), on emulated GPUs
// (emulated_gpus.cc): the rehearsal of tests/gpu/run.sh runs it.
//   emulated_check ranks SEED | gpus 1
#include <cstdio>
#include <cstdlib>
#include <string>

#include "probe/cuda/availability.h"
#include "tests/gpu/ranks_check.h"

int main(int argc, char** argv) {
  const std::string what = argc == 3 ? argv[1] : "";
  ledger::JsonWriter out;
  out.begin_object().member("gpus", ledger::cuda::collect_facts().devices);
  const bool good =
      what == "gpus" || ledger::check_ranks(out, static_cast<unsigned>(std::strtoul(argv[2], nullptr, 10)));
  out.member("ok", good).end_object();
  std::fputs(out.take().c_str(), stdout);
  return good ? 0 : 1;
}
