// emulated_device.h - a device that is a loop on this processor: the device kernels' bodies, run by g++.
#pragma once

#include <cstring>
#include <map>
#include <vector>

#include "probe/cuda/library_call.h"
#include "probe/device/kernels.h"
#include "probe/device_executor.h"
#include "probe/host/gemm.h"
#include "probe/host/host_store.h"
#include "probe/measured_device.h"
#include "tests/nccl/emulated_stream.h"

namespace ledger::emulated {

// Stands in for cuBLASLt: is told what it would be told, in column-major terms, and does what it would do.
class HostLibrary : public device::MatrixLibrary {
 public:
  bool multiply(const device::Product& product, const char*&) override {
    const std::optional<cuda::LibraryCall> call = cuda::library_call(product);
    if (!call) return false;
    for (std::uint64_t i = 0; i < call->batches; ++i) {
      const host::Matrix left = matrix(call->left, i), right = matrix(call->right, i), result = matrix(call->result, i);
      const auto element = static_cast<std::ptrdiff_t>(element_bytes(call->result.dtype));
      const host::Matrix bias{
          const_cast<std::byte*>(call->bias), call->result.dtype, result.rows, result.cols, element, 0};
      const host::Matrix* added = call->bias == nullptr ? nullptr : &bias;
      if (call->result.dtype == DType::f64) {
        host::multiply<double>(left, right, result, added);
      } else {
        host::multiply<float>(left, right, result, added);
      }
    }
    ++products;
    return true;
  }
  std::uint64_t products = 0;

 private:
  static host::Matrix matrix(const cuda::ColumnMajor& m, std::uint64_t index) {
    const auto element = static_cast<std::ptrdiff_t>(element_bytes(m.dtype));
    std::byte* data = m.data + static_cast<std::ptrdiff_t>(index) * m.batch * element;
    const std::ptrdiff_t column = m.leading * element;
    if (m.transposed) return {data, m.dtype, m.columns, m.rows, column, element};
    return {data, m.dtype, m.rows, m.columns, element, column};
  }
};

class HostMemory : public device::HostSide {
 public:
  std::byte* keep(std::int64_t number, Bytes bytes) override {
    memory_[number].assign(bytes, std::byte{0});
    return memory_[number].data();
  }
  std::byte* find(std::int64_t number, Bytes bytes) const override {
    const auto found = memory_.find(number);
    if (found == memory_.end() || found->second.size() != bytes) return nullptr;
    return const_cast<std::byte*>(found->second.data());
  }
  void drop(std::int64_t number) override { memory_.erase(number); }

 private:
  std::map<std::int64_t, std::vector<std::byte>> memory_;
};

class EmulatedDevice : public MeasuredDevice {
 public:
  explicit EmulatedDevice(bool with_library = true, int number = 0) {
    facts_.uuid[0] = static_cast<std::uint8_t>(number);
    services_.queue.stream = &stream_;
    services_.queue.capability = facts_.capability;
    services_.scratch = scratch_.data();
    services_.fault = &fault_;
    services_.library = with_library ? &library : nullptr;
    services_.host_side = &host_memory_;
  }
  const device::Kernels& kernels() const override { return kKernels; }
  device::Services& services() override { return services_; }
  std::byte* locate(std::uint64_t address, Bytes bytes) override { return store_.locate(address, bytes); }
  void fill(std::byte* memory, int byte, Bytes bytes) override { std::memset(memory, byte, bytes); }
  void copy_back(std::byte* to, const std::byte* from, Bytes bytes) override { std::memcpy(to, from, bytes); }
  void copy_in(std::byte* to, const std::byte* from, Bytes bytes) override { std::memcpy(to, from, bytes); }
  void use_workspace(std::byte*, Bytes bytes) override { workspace_bytes = bytes; }
  std::string queue_error() override { return ""; }
  std::string settle() override { return device::fault_text(fault_); }
  bool idle() override { return stream_.running == 0; }
  std::byte* put_aside(std::size_t place, const std::byte* from, Bytes bytes) override {
    aside_[place].assign(from, from + bytes);
    ++put_aside_count;
    return aside_[place].data();
  }

  std::string use_expandable_segments() override { return no_expandable_segments; }
  SegmentStore& store() override { return store_; }
  const DeviceFacts& facts() const override { return facts_; }
  DeviceMemory memory(Bytes reserved, Bytes nccl) override {
    DeviceMemory now;
    now.libraries_bytes = now.context_bytes = kContext;
    now.peak_bytes = peak_ = std::max(peak_, plus(2 * kContext, plus(reserved, nccl)));
    const auto others = static_cast<std::int64_t>(stream_.taken) - static_cast<std::int64_t>(nccl);
    if (reserved == 0) now.grown_bytes = static_cast<Bytes>(others);
    if (reserved > 0)
      now.unexplained_bytes =
          static_cast<std::int64_t>(store_.reserved()) - static_cast<std::int64_t>(reserved) + others;
    return now;
  }
  Bytes bytes_in_use() override { return plus(2 * kContext, plus(store_.reserved(), stream_.taken)); }
  void release_segments() override {}
  std::string store_error() const override { return ""; }

  HostLibrary library;
  std::string no_expandable_segments;  // why there are none
  Bytes workspace_bytes = 0;
  std::uint64_t put_aside_count = 0;

 private:
  static constexpr Bytes kContext = 64 * kMiB;
  HostStore store_;
  DeviceFacts facts_{.name = "Emulated GPU", .capability = 90, .multiprocessors = 1, .total_bytes = kGiB};
  Bytes peak_ = 0;
  std::vector<double> scratch_ = std::vector<double>(device::kScratch);
  std::int32_t fault_ = device::kNoFault;
  HostMemory host_memory_;
  Stream& stream_ = *emulated_stream();
  std::map<std::size_t, std::vector<std::byte>> aside_;
  device::Services services_;
};

}  // namespace ledger::emulated
