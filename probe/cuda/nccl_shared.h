// nccl_shared.h - what the communicators of one run have in common: the library, the device, who is told when something
// goes wrong, and how an end is waited for.
#pragma once

#include <string>
#include <vector>

#include "probe/cuda/nccl_communicator.h"

namespace ledger::cuda {

// A call that has not failed may still be going on.
inline bool is_well(nccl::Result result) {
  return result == nccl::kSuccess || result == nccl::kInProgress;
}

struct NcclCommunicator::Shared {
  struct Made {
    nccl::Comm comm = nullptr;
    NcclMemory::OfCommunicator memory;
  };

  const Nccl& library;
  MeasuredDevice& device;
  Communicator& control;
  double timeout_s;
  std::vector<Made> made;
  std::optional<Shortage> shortage;  // that ended it

  ~Shared();

  void abort_all();
  // In good order if all is well, and at once if it is not.
  void leave(nccl::Comm comm) const;
  Bytes taken_since(Bytes before) const;  // of the device, by everyone
  bool queue_is_empty() const;            // in the end; false when a rank was lost meanwhile
  // Until NCCL and, with `queue`, the device have done what they were asked. "": they have, or a rank was lost.
  std::string wait(nccl::Comm comm, bool queue, const std::string& what);
  // "what: unhandled system error". The library's own words are for the terminal alone: a file must not name machines.
  std::string complaint(const std::string& what, nccl::Result result, nccl::Comm comm);
  void lack_memory();
};

}  // namespace ledger::cuda
