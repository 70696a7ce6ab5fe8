// measured_device.h - a device whose memory is counted while a trace runs on it, and what is told of it afterwards.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "core/memory/caching_allocator.h"
#include "probe/device_executor.h"

namespace ledger {

// What is said of the machine; no names, serials or identifiers of it.
struct DeviceFacts {
  std::string name;    // "NVIDIA H200"
  int capability = 0;  // 90 for 9.0
  std::uint64_t multiprocessors = 0;
  Bytes total_bytes = 0;            // as CUDA reports them
  Bytes driver_reserved_bytes = 0;  // that the driver keeps for itself
  bool mig = false, mps = false, integrated = false, wsl = false;
  bool clean = true;                      // nobody else computed on it
  int driver_cuda = 0, runtime_cuda = 0;  // 13000 is 13.0
  std::uint64_t cublaslt = 0;
  std::uint64_t cudnn = 0;              // 0 where the run has no use for it
  std::string driver = {};              // "580.65.06", empty where NVML does not tell
  std::uint64_t nccl = 0;               // 22809 is 2.28.9; 0 where there is one rank
  std::array<std::uint8_t, 16> uuid{};  // tells ranks of one machine that they took the same GPU; never written
};

// What NCCL took of the device, outside the allocator: seen as a difference in what is in use.
struct NcclMemory {
  struct OfCommunicator {
    std::uint64_t ranks = 0;
    Bytes init_bytes = 0;  // when it was made
    Bytes connect_bytes =
        0;  // at the first call of each collective: buffers and channels are made when they are needed
  };
  std::vector<OfCommunicator> communicators;  // by when they were first used
  std::optional<Bytes> stats_bytes;           // what the library says that they take, of all of them; from 2.30 on

  Bytes total() const {
    Bytes bytes = 0;
    for (const OfCommunicator& one : communicators)
      bytes = plus(bytes, plus(one.init_bytes, one.connect_bytes));
    return bytes;
  }
};

// Device-wide numbers, apart from the allocator's. What could not be had has no value.
struct DeviceMemory {
  std::optional<Bytes> context_bytes;    // that the CUDA context took
  std::optional<Bytes> libraries_bytes;  // that loading libraries and the kernels' first launches took, before the run
  Bytes executor_bytes = 0;              // scratch memory of the executor's own, outside the allocator
  std::optional<Bytes> grown_bytes;      // what stayed after the run when all segments were given back
  Bytes peak_bytes = 0;                  // most in use on the device at any growth of the segments, others included
  // At the end of the run: what is in use beyond context, libraries, executor, growth and segments. 0 when all is told.
  std::optional<std::int64_t> unexplained_bytes;
  std::optional<NcclMemory> nccl;  // where ranks ran with it
};

// What cuDNN's plans for a trace's attention want as scratch memory.
struct AttentionScratch {
  bool planned = false;  // forward and backward
  Bytes forward_bytes = 0, backward_bytes = 0;
  std::string declined =
      {};  // why kernels of our own compute it instead; empty where cuDNN does, or nothing asks for it
};

class MeasuredDevice : public device::Device {
 public:
  // Loads what this trace asks for beyond matrix products. Its scratch memory belongs into the trace (TraceOptions):
  // without it cuDNN is not used.
  virtual AttentionScratch prepare(const Trace&) { return {}; }
  // From here on segments are expandable (AllocatorOptions). Why they cannot be; empty when they can.
  virtual std::string use_expandable_segments() = 0;
  virtual SegmentStore& store() = 0;
  virtual const DeviceFacts& facts() const = 0;
  // The numbers so far; `reserved` bytes of segments are held, and `nccl` bytes by it.
  virtual DeviceMemory memory(Bytes reserved, Bytes nccl) = 0;
  virtual Bytes bytes_in_use() = 0;             // on the device, by everyone
  virtual void release_segments() = 0;          // after the run, before the last look at the memory
  virtual std::string store_error() const = 0;  // why memory was refused, if not for lack of it
};

}  // namespace ledger
