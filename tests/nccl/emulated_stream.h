// emulated_stream.h - what the emulated device and the stand-in for NCCL have in common: the queue, of which the device
// only knows how much is still to be done, and the memory that a library takes of it.
#pragma once

#include <atomic>
#include <cstdint>

namespace ledger::emulated {

// What a "cudaStream_t" points to.
struct Stream {
  std::atomic<int> running{0};
  std::atomic<std::uint64_t> taken{0};  // bytes of the device
};

}  // namespace ledger::emulated

// That of the process's device; libraries that are loaded find it by this name.
extern "C" ledger::emulated::Stream* emulated_stream();
