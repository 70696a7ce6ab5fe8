// collect_facts.cc - what this machine says of its GPUs; a programme of the tests has another in its place.
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "probe/cuda/availability.h"

#if LEDGER_CUDA
#include <cuda_runtime_api.h>
#endif

namespace ledger::cuda {
namespace {

bool exists(const char* path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

bool file_mentions(const char* path, const char* word) {
  std::ifstream file(path);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::transform(text.begin(), text.end(), text.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; });
  return text.find(word) != std::string::npos;
}

}  // namespace

Facts collect_facts() {
  Facts facts;
  if (void* driver = dlopen("libcuda.so.1", RTLD_LAZY)) {
    facts.driver_library = true;
    dlclose(driver);
  }
#if LEDGER_CUDA
  facts.built = true;
  cudaRuntimeGetVersion(&facts.built_for);
  cudaDriverGetVersion(&facts.driver_version);
  facts.error = static_cast<int>(cudaGetDeviceCount(&facts.devices));
  if (facts.error != 0) facts.devices = 0;
#endif
  facts.wsl = file_mentions("/proc/version", "microsoft");
  facts.container = exists("/.dockerenv") || exists("/run/.containerenv") || std::getenv("KUBERNETES_SERVICE_HOST");
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) facts.visible_devices = visible;
  return facts;
}

}  // namespace ledger::cuda
