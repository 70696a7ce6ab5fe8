#include "core/config/gpu.h"

#include <array>
#include <cstddef>

namespace ledger {
namespace {

constexpr Bytes mib(double value) {
  return static_cast<Bytes>(value * static_cast<double>(kMiB));
}
constexpr Bytes gib(double value) {
  return static_cast<Bytes>(value * static_cast<double>(kGiB));
}

constexpr std::array kGpus = {
    Gpu{"t4-16gb", "NVIDIA T4 16GB", gib(16), gib(14.74), 75, mib(102), mib(222), 0, 320, "x"},
    Gpu{"a100-40gb", "NVIDIA A100 40GB", gib(40), gib(39.38), 80, mib(414), mib(700), 312, 1555, "x"},
    Gpu{"a100-80gb", "NVIDIA A100 80GB", gib(80), gib(79.15), 80, mib(414), mib(700), 312, 2039, "x"},
    Gpu{"h100-80gb", "NVIDIA H100 80GB", gib(80), gib(79.10), 90, mib(414), mib(700), 989.4, 3350, "x"},
};

constexpr std::array<const char*, kGpus.size()> ids() {
  std::array<const char*, kGpus.size()> all{};
  for (std::size_t i = 0; i < kGpus.size(); ++i)
    all[i] = kGpus[i].id;
  return all;
}

constexpr std::array<const char*, kGpus.size()> kIds = ids();

}  // namespace

std::span<const Gpu> gpus() {
  return kGpus;
}

std::span<const char* const> gpu_ids() {
  return kIds;
}

const Gpu* find_gpu(std::string_view id) {
  for (const Gpu& gpu : kGpus) {
    if (id == gpu.id) return &gpu;
  }
  return nullptr;
}

Bytes cublas_workspace_bytes(const Gpu& gpu) {
  constexpr Bytes kBefore = 2 * 4096 * kKiB + 8 * 16 * kKiB;  // ":4096:2:16:8", sizes in KiB
  return gpu.compute_capability >= 90 ? 32 * kMiB : kBefore;
}

}  // namespace ledger
