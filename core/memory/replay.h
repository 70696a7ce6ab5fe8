// replay.h - plays a trace through the allocator; with an executor it computes, without one it predicts.
//
// One loop drives prediction, the host executor and CUDA: prediction and measurement are the same program.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/memory/caching_allocator.h"
#include "core/trace/trace.h"

namespace ledger {

// Runs operators on real memory. Implementations: probe/host, probe/cuda. Addresses are the allocator's virtual ones.
class Executor {
 public:
  virtual ~Executor() = default;
  virtual void born(StorageId storage, std::uint64_t address) = 0;
  virtual void born_on_host(StorageId) {}  // in memory of the executor's own
  virtual void died(StorageId storage) = 0;
  virtual void run(std::uint32_t run_index) = 0;
  virtual void mark(std::uint32_t phase_index) = 0;  // the phase begins; finish what is queued and note the time
};

struct PhasePeak {
  std::uint32_t phase = 0;  // index into Trace::phases
  Bytes start_bytes = 0;    // live tensor bytes when it began
  Bytes peak_bytes = 0;     // most live tensor bytes within it (workspace not counted)
  Bytes end_bytes = 0;
  Bytes allocated_peak_bytes = 0;  // most allocator bytes within it (workspace counted)
  Bytes reserved_peak_bytes = 0;
  Bytes peak_with_workspace_bytes = 0;  // most live tensor + workspace bytes
  std::uint32_t peak_event = 0;  // alloc event that first reached peak_bytes; the phase's mark if none exceeded it
};

struct Sample {
  std::uint32_t event = 0;
  Bytes tensor_bytes = 0;  // after the event
  Bytes allocated = 0;
  Bytes reserved = 0;
};

struct Replay {
  std::vector<PhasePeak> phases;
  std::vector<Sample> samples;     // one per alloc/free event, in order
  Bytes peak_tensor_bytes = 0;     // over all phases, workspace not counted
  Bytes peak_workspace_bytes = 0;  // most live workspace at one moment
  Bytes peak_allocated_bytes = 0;
  Bytes peak_reserved_bytes = 0;
  std::uint32_t peak_event = 0;  // where peak_tensor_bytes was first reached
  std::uint32_t allocated_peak_event = 0;
  AllocatorStats allocator;  // at the end

  // Out of memory is a result: the replay stops at this event.
  bool out_of_memory = false;
  std::uint32_t oom_event = 0;
  StorageId oom_storage = kNoStorage;
  Bytes oom_requested_bytes = 0;  // the tensor's
  Bytes oom_segment_bytes = 0;    // asked of the driver

  std::vector<std::uint64_t> addresses;  // virtual address of every alloc event in order, when asked for
};

struct ReplayOptions {
  AllocatorOptions allocator;
  bool record_addresses = false;
  bool record_samples = true;
};

// Plays `trace`. Labels change no byte here: none leads into or out of Category::workspace. `executor` and `store` may
// be null (prediction).
Replay replay(const Trace& trace, const ReplayOptions& options, Executor* executor = nullptr,
              SegmentStore* store = nullptr);

}  // namespace ledger
