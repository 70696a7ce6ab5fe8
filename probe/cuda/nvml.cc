#include "probe/cuda/nvml.h"

#include <array>
#include <cstdio>

namespace ledger::cuda {
namespace {

// Declarations of our own: the toolkit need not carry nvml.h. Source: NVML API reference, structs and their versions.
constexpr int kNvmlSuccess = 0;
constexpr int kInsufficientSize = 7;

struct MemoryV2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
constexpr unsigned kMemoryV2 = static_cast<unsigned>(sizeof(MemoryV2)) | (2u << 24);

struct ProcessV3 {
  unsigned pid;
  unsigned long long used_memory;
  unsigned gpu_instance, compute_instance;
};

using Init = int (*)();
using ByUuid = int (*)(const char*, void**);
using GetMemory = int (*)(void*, MemoryV2*);
using GetProcesses = int (*)(void*, unsigned*, ProcessV3*);
using GetText = int (*)(char*, unsigned);

const LibraryNames& nvml_names() {
  static const LibraryNames kNames = {
      "NVML", {"libnvidia-ml.so.1"}, "the memory of the device before and beside this process", nullptr};
  return kNames;
}

}  // namespace

std::string uuid_text(const std::array<std::uint8_t, 16>& uuid, const char* prefix) {
  std::string text = prefix;
  for (std::size_t i = 0; i < uuid.size(); ++i) {
    std::array<char, 4> hex{};
    std::snprintf(hex.data(), hex.size(), "%02x", static_cast<unsigned>(uuid[i]));
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += hex.data();
  }
  return text;
}

Nvml::Nvml() : library_(nvml_names()) {
  if (!library_.loaded()) {
    problem_ = library_.error();
    return;
  }
  const auto init = function<Init>("nvmlInit_v2");
  const int status = init == nullptr ? -1 : init();
  initialised_ = status == kNvmlSuccess;
  if (!initialised_) problem_ = "NVML could not be initialised (status " + std::to_string(status) + ")";
}

Nvml::~Nvml() {
  if (!initialised_) return;
  if (const auto shutdown = function<Init>("nvmlShutdown")) shutdown();
}

bool Nvml::choose(const std::array<std::uint8_t, 16>& uuid) {
  const auto by_uuid = initialised_ ? function<ByUuid>("nvmlDeviceGetHandleByUUID") : nullptr;
  if (by_uuid == nullptr) return false;
  for (const char* prefix : {"GPU-", "MIG-"}) {
    void* handle = nullptr;
    if (by_uuid(uuid_text(uuid, prefix).c_str(), &handle) != kNvmlSuccess) continue;
    device_ = handle;
    mig_ = prefix[0] == 'M';
    return true;
  }
  problem_ = "NVML does not know the GPU that CUDA uses";
  return false;
}

std::optional<Nvml::Memory> Nvml::memory() const {
  const auto get = device_ == nullptr ? nullptr : function<GetMemory>("nvmlDeviceGetMemoryInfo_v2");
  MemoryV2 memory{};
  memory.version = kMemoryV2;
  if (get == nullptr || get(device_, &memory) != kNvmlSuccess) return std::nullopt;
  return Memory{memory.total, memory.reserved, memory.used};
}

std::optional<std::vector<std::uint32_t>> Nvml::compute_processes() const {
  const auto get = device_ == nullptr ? nullptr : function<GetProcesses>("nvmlDeviceGetComputeRunningProcesses_v3");
  if (get == nullptr) return std::nullopt;
  constexpr unsigned kMost = 64;
  std::array<ProcessV3, kMost> processes{};
  unsigned count = kMost;
  const int status = get(device_, &count, processes.data());
  if (status != kNvmlSuccess && status != kInsufficientSize) return std::nullopt;
  std::vector<std::uint32_t> ids;
  for (unsigned i = 0; i < count && i < kMost; ++i)
    ids.push_back(processes[i].pid);
  return ids;
}

std::optional<std::string> Nvml::driver_version() const {
  const auto get = initialised_ ? function<GetText>("nvmlSystemGetDriverVersion") : nullptr;
  std::array<char, 96> text{};
  if (get == nullptr || get(text.data(), text.size()) != kNvmlSuccess) return std::nullopt;
  return text.data();
}

}  // namespace ledger::cuda
