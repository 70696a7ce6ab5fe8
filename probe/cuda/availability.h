// availability.h - whether this machine has a GPU that this build can use, and if not, why not, in one sentence.
//
// Facts are collected in one place and judged in another, so that every judgement is tested without a GPU.
#pragma once

#include <optional>
#include <string>

namespace ledger::cuda {

struct Facts {
  bool built = false;           // this build has the CUDA executor
  int built_for = 0;            // CUDA version it was built with: 13000 is 13.0
  bool driver_library = false;  // libcuda.so.1 can be loaded
  int driver_version = 0;       // newest CUDA that the driver serves, 0 without one
  int error = 0;                // of the first call that needs a device, as cudaError_t
  int devices = 0;
  bool wsl = false;
  bool container = false;
  std::optional<std::string> visible_devices;  // CUDA_VISIBLE_DEVICES, where it is set
};

// Asks this machine. Creates no context and allocates nothing on a GPU.
Facts collect_facts();

// Why no GPU can be used; empty when one can. Says what is wrong and what would help, not what probe does instead.
std::string why_not(const Facts& facts);

// What a cudaError_t means to the person at the terminal; nullptr for codes that need no explanation beyond their name.
const char* explain_error(int code);

std::string version_text(int version);  // "13.0"

}  // namespace ledger::cuda
