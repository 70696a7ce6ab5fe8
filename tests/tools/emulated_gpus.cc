// emulated_gpus.cc - a machine with GPUs that are loops on its processor, in the place of probe/cuda/run_cuda.cc and
// collect_facts.cc: emulated_probe is the programme itself on it. EMULATED_GPUS says how many there are,
// CUDA_VISIBLE_DEVICES which of them a process sees, and NO_EXPANDABLE_SEGMENTS why they have none.
#include <cstdlib>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "probe/cuda/availability.h"
#include "probe/cuda/run_cuda.h"
#include "tests/probe/device/emulated_device.h"

namespace ledger::cuda {
namespace {

// By the numbers that the process sees.
std::vector<int> visible() {
  std::vector<int> numbers;
  if (const char* const shown = std::getenv("CUDA_VISIBLE_DEVICES")) {
    std::istringstream in(shown);
    for (std::string one; std::getline(in, one, ',');)
      numbers.push_back(std::atoi(one.c_str()));
    return numbers;
  }
  const char* const count = std::getenv("EMULATED_GPUS");
  for (int i = 0; i < (count == nullptr ? 1 : std::atoi(count)); ++i)
    numbers.push_back(i);
  return numbers;
}

}  // namespace

Facts collect_facts() {
  Facts facts;
  facts.built = facts.driver_library = true;
  facts.built_for = facts.driver_version = 13000;
  facts.devices = static_cast<int>(visible().size());
  if (const char* const shown = std::getenv("CUDA_VISIBLE_DEVICES")) facts.visible_devices = shown;
  return facts;
}

DeviceFacts gpu_facts(int number) {
  return emulated::EmulatedDevice(true, visible().at(static_cast<std::size_t>(number))).facts();
}

OpenedGpu open_gpu(int number, bool) {
  auto device = std::make_unique<emulated::EmulatedDevice>(true, visible().at(static_cast<std::size_t>(number)));
  if (const char* const why = std::getenv("NO_EXPANDABLE_SEGMENTS")) device->no_expandable_segments = why;
  OpenedGpu opened;
  opened.device = std::move(device);
  return opened;
}

}  // namespace ledger::cuda
