#include "probe/cuda/availability.h"

#include <algorithm>
#include <iterator>

#if LEDGER_CUDA
#include <cuda_runtime_api.h>
#endif

namespace ledger::cuda {
namespace {

enum Code : int {
  kMemoryAllocation = 2,
  kInitialization = 3,
  kStubLibrary = 34,
  kInsufficientDriver = 35,
  kDevicesUnavailable = 46,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kNoKernelImage = 209,
  kEccUncorrectable = 214,
  kUnsupportedPtx = 222,
  kIllegalAddress = 700,
  kOperatingSystem = 304,
  kLaunchOutOfResources = 701,
  kLaunchFailure = 719,
  kNotPermitted = 800,
  kSystemNotReady = 802,
  kDriverMismatch = 803,
  kCompatNotSupported = 804,
  kMpsConnectionFailed = 805,
  kMpsRpcFailure = 806,
  kMpsServerNotReady = 807,
  kMpsMaxClients = 808,
  kMpsMaxConnections = 809,
  kMpsClientTerminated = 810,
  kUnknown = 999,
};

#if LEDGER_CUDA
static_assert(cudaErrorMemoryAllocation == static_cast<cudaError>(kMemoryAllocation));
static_assert(cudaErrorStubLibrary == static_cast<cudaError>(kStubLibrary));
static_assert(cudaErrorInsufficientDriver == static_cast<cudaError>(kInsufficientDriver));
static_assert(cudaErrorDevicesUnavailable == static_cast<cudaError>(kDevicesUnavailable));
static_assert(cudaErrorNoDevice == static_cast<cudaError>(kNoDevice));
static_assert(cudaErrorNoKernelImageForDevice == static_cast<cudaError>(kNoKernelImage));
static_assert(cudaErrorECCUncorrectable == static_cast<cudaError>(kEccUncorrectable));
static_assert(cudaErrorUnsupportedPtxVersion == static_cast<cudaError>(kUnsupportedPtx));
static_assert(cudaErrorOperatingSystem == static_cast<cudaError>(kOperatingSystem));
static_assert(cudaErrorLaunchOutOfResources == static_cast<cudaError>(kLaunchOutOfResources));
static_assert(cudaErrorSystemNotReady == static_cast<cudaError>(kSystemNotReady));
static_assert(cudaErrorSystemDriverMismatch == static_cast<cudaError>(kDriverMismatch));
static_assert(cudaErrorCompatNotSupportedOnDevice == static_cast<cudaError>(kCompatNotSupported));
static_assert(cudaErrorMpsConnectionFailed == static_cast<cudaError>(kMpsConnectionFailed));
static_assert(cudaErrorMpsClientTerminated == static_cast<cudaError>(kMpsClientTerminated));
#endif

struct ErrorRow {
  Code code;
  const char* meaning;
};

// Source of the codes: CUDA Runtime API, enum cudaError.
constexpr ErrorRow kErrors[] = {
    {kMemoryAllocation, "the GPU has not even memory for a context: other processes fill it"},
    {kInitialization, "the driver could not be initialised: is its kernel module loaded (nvidia-smi tells)?"},
    {kStubLibrary,
     "the libcuda.so that was found is the toolkit's stub and no driver: take lib64/stubs off LD_LIBRARY_PATH"},
    {kDevicesUnavailable,
     "every GPU is in use by a process that has it exclusively (compute mode EXCLUSIVE_PROCESS), or compute is "
     "prohibited on it: nvidia-smi -q -d COMPUTE tells"},
    {kNoDevice, "the driver sees no GPU"},
    {kInvalidDevice, "there is no GPU of this number"},
    {kNoKernelImage,
     "this build has no kernels for this GPU's architecture: build with -DLEDGER_CUDA_ARCHITECTURES=native on this "
     "machine"},
    {kEccUncorrectable, "the GPU reports an uncorrectable memory error: it needs a reset, or service"},
    {kUnsupportedPtx,
     "the driver cannot compile this build's kernels for this GPU, which is newer than both: update the driver, or "
     "build with -DLEDGER_CUDA_ARCHITECTURES=native on this machine"},
    {kOperatingSystem,
     "the operating system refused the driver a call, as sandboxes do: in a container, are the GPU's device files and "
     "capabilities passed in?"},
    {kIllegalAddress, "a kernel reached outside its memory: a fault of probe, please report it"},
    {kLaunchOutOfResources, "the GPU has not the registers, shared memory or memory that a kernel needs"},
    {kLaunchFailure, "a kernel failed on the GPU"},
    {kNotPermitted, "the driver does not permit this to the present user"},
    {kSystemNotReady,
     "the GPUs wait for the fabric manager (NVSwitch systems): is nvidia-fabricmanager running, in the driver's "
     "version?"},
    {kDriverMismatch,
     "the driver's kernel module and its libcuda are of different versions: the machine was updated and not restarted"},
    {kCompatNotSupported,
     "a CUDA compatibility package is installed, which serves data-centre GPUs only and not this one: update the "
     "driver"},
    {kMpsConnectionFailed, "the MPS control daemon is named by the environment and does not answer"},
    {kMpsRpcFailure, "the MPS server does not answer"},
    {kMpsServerNotReady, "the MPS server is starting or recovering: try again"},
    {kMpsMaxClients, "the MPS server has as many clients as it takes"},
    {kMpsMaxConnections, "the MPS server has no connection to the GPU left"},
    {kMpsClientTerminated, "the MPS server has ended this client: another client of it failed"},
};

std::string no_driver(const Facts& facts) {
  std::string text = "no NVIDIA driver was found on this machine, so there is no GPU to measure on";
  if (facts.wsl) return text + " (WSL 2: the driver is Windows' own; install it there, and nothing in Linux)";
  if (facts.container) return text + " (a container sees the GPU only if it is passed in, as by docker run --gpus all)";
  return text;
}

std::string no_device(const Facts& facts) {
  std::string text = "the NVIDIA driver is here and sees no GPU";
  if (!facts.visible_devices) return text + ": nvidia-smi -L should list one";
  return text + ": CUDA_VISIBLE_DEVICES is \"" + *facts.visible_devices + "\", which hides or misnames it";
}

std::string old_driver(const Facts& facts) {
  return "the NVIDIA driver is too old for this build: it serves CUDA " + version_text(facts.driver_version) +
         ", and probe was built with " + version_text(facts.built_for) +
         ": update the driver, or build probe with that version of the toolkit";
}

}  // namespace

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

const char* explain_error(int code) {
  const auto row = std::find_if(std::begin(kErrors), std::end(kErrors), [code](auto& r) { return r.code == code; });
  return row == std::end(kErrors) ? nullptr : row->meaning;
}

std::string why_not(const Facts& facts) {
  const bool driver = facts.driver_version > 0 || facts.driver_library;
  // "The driver is insufficient" is also what the runtime says where there is none at all, so that is asked first.
  if (!driver) return no_driver(facts);
  if (!facts.built) {
    return "an NVIDIA driver is here, but this build of probe has no CUDA executor: the build found no nvcc. Install "
           "the CUDA toolkit and build again";
  }
  if (facts.error == kStubLibrary) return explain_error(kStubLibrary);
  if (facts.error == kInsufficientDriver) return old_driver(facts);
  if (facts.error == kNoDevice || (facts.error == 0 && facts.devices == 0)) return no_device(facts);
  if (facts.error == 0) return "";
  const char* meaning = explain_error(facts.error);
  if (meaning != nullptr) return meaning;
  return "the CUDA driver reports error " + std::to_string(facts.error) + ": nvidia-smi may tell more";
}

}  // namespace ledger::cuda
