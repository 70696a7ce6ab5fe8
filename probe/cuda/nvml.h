// nvml.h - what the driver's management library tells of a GPU before and beside a CUDA context. All of it is optional:
// where a call is missing, not supported or not permitted, there is no value, and nothing else happens.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "probe/cuda/shared_library.h"

namespace ledger::cuda {

class Nvml {
 public:
  Nvml();
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // The GPU that CUDA calls by this UUID; a slice of one (MIG) has a UUID of its own.
  bool choose(const std::array<std::uint8_t, 16>& uuid);
  bool chosen() const { return device_ != nullptr; }
  bool is_mig() const { return mig_; }
  const std::string& problem() const { return problem_; }  // why it was not loaded or found

  struct Memory {
    Bytes total = 0, reserved = 0, used = 0;  // of the whole device; reserved by the driver for itself
  };
  std::optional<Memory> memory() const;
  // Processes that compute on it, this one included; nothing where the list is not to be had (containers, WSL).
  std::optional<std::vector<std::uint32_t>> compute_processes() const;
  std::optional<std::string> driver_version() const;

 private:
  template <class F>
  F function(const char* name) const {
    return reinterpret_cast<F>(const_cast<SharedLibrary&>(library_).symbol(name));
  }

  SharedLibrary library_;
  void* device_ = nullptr;
  bool mig_ = false;
  bool initialised_ = false;
  std::string problem_;
};

// "GPU-1b2c...": as nvidia-smi prints it.
std::string uuid_text(const std::array<std::uint8_t, 16>& uuid, const char* prefix);

}  // namespace ledger::cuda
