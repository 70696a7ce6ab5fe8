#include "probe/cuda/runtime/cuda_device.h"

#include <cuda_runtime_api.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "probe/cuda/availability.h"
#include "probe/cuda/runtime/driver_entry_points.h"

namespace ledger::cuda {
namespace {

constexpr Bytes kBusyBytes = 300 * kMiB;  // more than a driver takes for itself where nobody computes

cudaStream_t stream_of(const device::Services& services) {
  return static_cast<cudaStream_t>(services.queue.stream);
}

std::array<std::uint8_t, 16> uuid_of(const cudaDeviceProp& properties) {
  std::array<std::uint8_t, 16> uuid{};
  std::memcpy(uuid.data(), properties.uuid.bytes, uuid.size());
  return uuid;
}

// Who else computes on the GPU, in words; empty when nobody does. Asked before there is a context of ours.
std::string others(const Nvml& nvml, const std::optional<Nvml::Memory>& memory) {
  if (const auto processes = nvml.compute_processes()) {
    if (processes->empty()) return "";
    return std::to_string(processes->size()) +
           (processes->size() == 1 ? " other process computes" : " other processes compute") + " on the GPU";
  }
  if (!memory || memory->used < kBusyBytes) return "";
  return std::to_string(memory->used / kMiB) + " MiB of the GPU are in use by others";
}

}  // namespace

PinnedMemory::~PinnedMemory() {
  settle();
  for (const auto& [number, piece] : pieces_)
    cudaFreeHost(piece.memory);
}

std::byte* PinnedMemory::keep(std::int64_t number, Bytes bytes) {
  void* memory = nullptr;
  if (cudaMallocHost(&memory, bytes) != cudaSuccess) {
    cudaGetLastError();
    return nullptr;
  }
  drop(number);
  pieces_[number] = {static_cast<std::byte*>(memory), bytes};
  return pieces_[number].memory;
}

std::byte* PinnedMemory::find(std::int64_t number, Bytes bytes) const {
  const auto found = pieces_.find(number);
  return found == pieces_.end() || found->second.bytes != bytes ? nullptr : found->second.memory;
}

void PinnedMemory::drop(std::int64_t number) {
  const auto found = pieces_.find(number);
  if (found == pieces_.end()) return;
  dropped_.push_back(found->second);
  pieces_.erase(found);
}

void PinnedMemory::settle() {
  for (const Piece& piece : dropped_)
    cudaFreeHost(piece.memory);
  dropped_.clear();
}

CudaDevice::~CudaDevice() {
  if (services_.queue.stream != nullptr) cudaStreamSynchronize(stream_of(services_));
  attention_.reset();
  release_segments();
  for (const auto& [place, piece] : aside_)
    cudaFree(piece.memory);
  if (scratch_ != nullptr) cudaFree(scratch_);
  if (services_.queue.stream != nullptr) cudaStreamDestroy(stream_of(services_));
}

std::string CudaDevice::open(Nvml& nvml, std::optional<Bytes> before) {
  if (const cudaError_t status = cudaSetDevice(number_); status != cudaSuccess) {
    return error_sentence("cudaSetDevice", status);
  }
  if (const cudaError_t status = cudaFree(nullptr); status != cudaSuccess) {  // makes the context, if that did not
    return error_sentence("creating a context", status);
  }
  const auto after = nvml.memory();
  if (before && after) memory_.context_bytes = after->used - std::min(*before, after->used);
  base_ = device_bytes_in_use();
  const std::string error = start();
  if (!error.empty()) return error;
  memory_.libraries_bytes =
      device_bytes_in_use() - std::min(device_bytes_in_use(), plus(base_, memory_.executor_bytes));
  store_.look();
  return "";
}

std::string CudaDevice::start() {
  const Bytes fault_at = times(device::kScratch, sizeof(double));
  void* memory = nullptr;
  if (const cudaError_t status = cudaMalloc(&memory, fault_at + sizeof(double)); status != cudaSuccess) {
    return error_sentence("cudaMalloc", status);
  }
  scratch_ = static_cast<std::byte*>(memory);
  memory_.executor_bytes = device_bytes_in_use() - std::min(device_bytes_in_use(), base_);
  cudaStream_t stream = nullptr;
  if (const cudaError_t status = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking); status != cudaSuccess) {
    return error_sentence("cudaStreamCreate", status);
  }
  services_.queue = {.stream = stream, .multiprocessors = facts_.multiprocessors, .capability = facts_.capability};
  services_.scratch = reinterpret_cast<double*>(scratch_);
  services_.fault = reinterpret_cast<std::int32_t*>(scratch_ + fault_at);
  services_.host_side = &pinned_;
  services_.library = &library_;
  if (const cudaError_t status = cudaMemsetAsync(services_.fault, 0, sizeof(double), stream); status != cudaSuccess) {
    return error_sentence("cudaMemset", status);
  }
  if (!library_.open(stream)) return library_.problem();
  facts_.cublaslt = library_.version();
  return settle();
}

AttentionScratch CudaDevice::prepare(const Trace& trace) {
  const auto asks = [](const Run& run) {
    return run.op == OpKind::cudnn_attention || run.op == OpKind::cudnn_attention_backward;
  };
  if (std::none_of(trace.runs.begin(), trace.runs.end(), asks)) return {};
  if (attention_ == nullptr) {
    const Bytes before = device_bytes_in_use();
    attention_ = std::make_unique<CudnnAttentions>();
    if (const std::string missing = attention_->open(services_.queue.stream); !missing.empty()) {
      return {.planned = false, .declined = missing};
    }
    const Bytes taken = device_bytes_in_use() - std::min(device_bytes_in_use(), before);
    memory_.libraries_bytes = plus(memory_.libraries_bytes.value_or(0), taken);
    services_.attention = attention_.get();
    facts_.cudnn = attention_->version();
  }
  return plan_attention(*attention_, trace);
}

void CudaDevice::fill(std::byte* memory, int byte, Bytes bytes) {
  cudaMemsetAsync(memory, byte, bytes, stream_of(services_));
}

void CudaDevice::copy_back(std::byte* to, const std::byte* from, Bytes bytes) {
  cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_of(services_));
}

void CudaDevice::copy_in(std::byte* to, const std::byte* from, Bytes bytes) {
  cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_of(services_));
  cudaStreamSynchronize(stream_of(services_));
}

std::string CudaDevice::queue_error() {
  const cudaError_t status = cudaGetLastError();
  return status == cudaSuccess ? "" : error_sentence("launching a kernel", status);
}

std::string CudaDevice::settle() {
  std::int32_t fault = device::kNoFault;
  cudaMemcpyAsync(&fault, services_.fault, sizeof fault, cudaMemcpyDeviceToHost, stream_of(services_));
  const cudaError_t status = cudaStreamSynchronize(stream_of(services_));
  if (status != cudaSuccess) return error_sentence("running kernels", status);
  pinned_.settle();
  store_.look();
  return device::fault_text(fault);
}

std::string CudaDevice::use_expandable_segments() {
  expandable_.emplace(driver_memory(), ExpandableStore::Device{
                                           .number = number_,
                                           .total_bytes = facts_.total_bytes,
                                           .settle = [this] { cudaStreamSynchronize(stream_of(services_)); },
                                           .grown = [this] { store_.look(); },
                                       });
  std::string why = expandable_->why_not();
  if (!why.empty()) expandable_.reset();
  return why;
}

void CudaDevice::release_segments() {
  store_.release_all();
  if (expandable_) expandable_->release_all();
}

bool CudaDevice::idle() {
  return cudaStreamQuery(stream_of(services_)) != cudaErrorNotReady;  // an error is settle()'s to tell
}

// Grows to the largest message; what it takes is the executor's.
std::byte* CudaDevice::put_aside(std::size_t place, const std::byte* from, Bytes bytes) {
  Piece& piece = aside_[place];
  if (piece.bytes < bytes) {
    const Bytes before = device_bytes_in_use();
    cudaFree(piece.memory);
    piece = {};
    void* memory = nullptr;
    if (cudaMalloc(&memory, bytes) != cudaSuccess) {
      cudaGetLastError();
      return nullptr;
    }
    piece = {static_cast<std::byte*>(memory), bytes};
    memory_.executor_bytes = plus(memory_.executor_bytes, device_bytes_in_use()) - before;
    store_.look();
  }
  cudaMemcpyAsync(piece.memory, from, bytes, cudaMemcpyDeviceToDevice, stream_of(services_));
  return piece.memory;
}

DeviceMemory CudaDevice::memory(Bytes reserved, Bytes nccl) {
  DeviceMemory now = memory_;
  now.peak_bytes = store_.peak_used();
  const auto told = static_cast<std::int64_t>(base_ + now.executor_bytes + now.libraries_bytes.value_or(0) + nccl);
  const auto rest = static_cast<std::int64_t>(device_bytes_in_use()) - told - static_cast<std::int64_t>(reserved);
  if (reserved > 0) now.unexplained_bytes = rest;
  if (reserved == 0 && rest >= 0) now.grown_bytes = static_cast<Bytes>(rest);
  return now;
}

DeviceFacts facts_of_gpu(int number) {
  DeviceFacts facts;
  cudaDeviceProp properties{};
  if (cudaGetDeviceProperties(&properties, number) != cudaSuccess) return facts;
  facts.name = properties.name;
  facts.capability = 10 * properties.major + properties.minor;
  facts.multiprocessors = static_cast<std::uint64_t>(properties.multiProcessorCount);
  facts.total_bytes = properties.totalGlobalMem;
  facts.mps = properties.mpsEnabled != 0;
  facts.integrated = properties.integrated != 0;
  facts.uuid = uuid_of(properties);
  facts.wsl = collect_facts().wsl;
  cudaDriverGetVersion(&facts.driver_cuda);
  cudaRuntimeGetVersion(&facts.runtime_cuda);
  return facts;
}

OpenedGpu open_device(int number, bool allow_busy) {
  OpenedGpu opened;
  cudaDeviceProp properties{};
  if (const cudaError_t status = cudaGetDeviceProperties(&properties, number); status != cudaSuccess) {
    opened.error = error_sentence("cudaGetDeviceProperties", status);
    return opened;
  }
  DeviceFacts facts = facts_of_gpu(number);
  Nvml nvml;
  nvml.choose(uuid_of(properties));
  facts.mig = nvml.is_mig();
  facts.driver = nvml.driver_version().value_or("");
  const std::optional<Nvml::Memory> before = nvml.memory();
  if (before) facts.driver_reserved_bytes = before->reserved;
  const std::string who = others(nvml, before);
  facts.clean = who.empty();
  opened.busy = !who.empty();
  if (opened.busy && !allow_busy) {
    opened.error = who;
    return opened;
  }
  auto device = std::make_unique<CudaDevice>(number, std::move(facts));
  opened.error = device->open(nvml, before ? std::optional<Bytes>(before->used) : std::nullopt);
  if (opened.error.empty()) opened.device = std::move(device);
  return opened;
}

}  // namespace ledger::cuda
