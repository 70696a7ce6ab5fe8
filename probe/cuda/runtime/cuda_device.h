// cuda_device.h - a GPU: its memory, its queue, its libraries, and the account of what each of them takes.
#pragma once

#include <map>
#include <optional>

#include "probe/cuda/cudnn_attention.h"
#include "probe/cuda/expandable_store.h"
#include "probe/cuda/nvml.h"
#include "probe/cuda/run_cuda.h"
#include "probe/cuda/runtime/cublaslt.h"
#include "probe/cuda/runtime/cuda_store.h"

namespace ledger::cuda {

extern const device::Kernels kKernels;  // kernels_tiles.cu

// Pinned host memory, which kernels write and read over the bus.
class PinnedMemory : public device::HostSide {
 public:
  ~PinnedMemory() override;
  std::byte* keep(std::int64_t number, Bytes bytes) override;
  std::byte* find(std::int64_t number, Bytes bytes) const override;
  void drop(std::int64_t number) override;
  void settle();  // the queue is empty: what was dropped is given back

 private:
  struct Piece {
    std::byte* memory = nullptr;
    Bytes bytes = 0;
  };
  std::map<std::int64_t, Piece> pieces_;
  std::vector<Piece> dropped_;
};

class CudaDevice : public MeasuredDevice {
 public:
  CudaDevice(int number, DeviceFacts facts) : number_(number), facts_(std::move(facts)) {}
  ~CudaDevice() override;

  // Context, queue, libraries; what went wrong, or "". `before`: bytes in use on the device before, as NVML told.
  std::string open(Nvml& nvml, std::optional<Bytes> before);

  AttentionScratch prepare(const Trace& trace) override;
  const device::Kernels& kernels() const override { return kKernels; }
  device::Services& services() override { return services_; }
  std::byte* locate(std::uint64_t address, Bytes bytes) override {
    return expandable_ ? expandable_->locate(address, bytes) : store_.locate(address, bytes);
  }
  void fill(std::byte* memory, int byte, Bytes bytes) override;
  void copy_back(std::byte* to, const std::byte* from, Bytes bytes) override;
  void copy_in(std::byte* to, const std::byte* from, Bytes bytes) override;
  void use_workspace(std::byte* memory, Bytes bytes) override { library_.use_workspace(memory, bytes); }
  std::string queue_error() override;
  std::string settle() override;
  bool idle() override;
  std::byte* put_aside(std::size_t place, const std::byte* from, Bytes bytes) override;
  std::string use_expandable_segments() override;
  SegmentStore& store() override {
    return expandable_ ? static_cast<SegmentStore&>(*expandable_) : static_cast<SegmentStore&>(store_);
  }
  const DeviceFacts& facts() const override { return facts_; }
  DeviceMemory memory(Bytes reserved, Bytes nccl) override;
  Bytes bytes_in_use() override { return device_bytes_in_use(); }
  void release_segments() override;
  std::string store_error() const override { return expandable_ ? expandable_->error() : store_.error(); }

  const CublasLt& library() const { return library_; }

 private:
  std::string start();

  struct Piece {
    std::byte* memory = nullptr;
    Bytes bytes = 0;
  };

  int number_;
  DeviceFacts facts_;
  CudaStore store_;  // also looks at the device for all
  std::optional<ExpandableStore> expandable_;
  CublasLt library_;
  std::unique_ptr<CudnnAttentions> attention_;  // once a trace has asked for it
  PinnedMemory pinned_;
  device::Services services_;
  DeviceMemory memory_;
  Bytes base_ = 0;  // in use on the device with the context alone
  std::byte* scratch_ = nullptr;
  std::map<std::size_t, Piece> aside_;
};

DeviceFacts facts_of_gpu(int number);
OpenedGpu open_device(int number, bool allow_busy);

}  // namespace ledger::cuda
