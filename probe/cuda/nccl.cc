#include "probe/cuda/nccl.h"

namespace ledger::cuda {
namespace {

// The first whose communicators are made and used without waiting inside a call, groups of calls included.
constexpr std::uint64_t kOldestNccl = 21800;

const LibraryNames& nccl_names() {
  static const LibraryNames kNames = {"NCCL", {"libnccl.so.2"}, "ranks on several GPUs", "nvidia-nccl"};
  return kNames;
}

// Before 2.9 a version was 1000 major + 100 minor + patch.
std::string text_of(std::uint64_t version) {
  const std::uint64_t major = version < 10000 ? version / 1000 : version / 10000;
  const std::uint64_t minor = version < 10000 ? version / 100 % 10 : version / 100 % 100;
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(version % 100);
}

}  // namespace

Nccl::Nccl() : library_(nccl_names()) {
  if (!library_.loaded()) {
    problem_ = library_.error();
    return;
  }
  memory_ = reinterpret_cast<decltype(memory_)>(library_.optional_symbol("ncclCommMemStats"));
  // The version first: an old library lacks functions, and its age says more than their names.
  const auto get_version = reinterpret_cast<decltype(call_.ncclGetVersion)>(library_.symbol("ncclGetVersion"));
  int version = 0;
  if (get_version != nullptr && get_version(&version) == nccl::kSuccess) version_ = static_cast<std::uint64_t>(version);
  if (version_ != 0 && version_ < kOldestNccl) {
    problem_ =
        library_.soname() + " is NCCL " + text_of(version_) + "; " + text_of(kOldestNccl) + " or newer is needed";
    return;
  }
#define LEDGER_LOAD(result, name, parameters) \
  call_.name = reinterpret_cast<decltype(call_.name)>(library_.symbol(#name));
  LEDGER_NCCL(LEDGER_LOAD)
#undef LEDGER_LOAD
  if (!library_.missing().empty())
    problem_ = library_.soname() + " has no function " + library_.missing() + ": it is not NCCL, or not all of it";
}

std::string Nccl::version_text() const {
  return version_ == 0 ? "none" : text_of(version_);
}

std::string Nccl::explain(nccl::Result result) const {
  const char* const meaning = call_.ncclGetErrorString(result);
  return meaning == nullptr ? "error " + std::to_string(result) : meaning;
}

std::string Nccl::last_words(nccl::Comm comm) const {
  const char* const last = call_.ncclGetLastError(comm);
  std::string text = last == nullptr ? "" : last;
  while (text.ends_with('\n') || text.ends_with('.'))
    text.pop_back();
  return text;
}

// Its runtime is its own, and so is that one's last error: what it says is all there is to go by. NCCL's CUDACHECK
// quotes cudaGetErrorString, and its allocators name the function after that (src/include/alloc.h). Memory of the host
// is another matter.
bool Nccl::lacks_memory(nccl::Result result, const std::string& words) {
  if (result != nccl::kUnhandledCudaError && result != nccl::kSystemError) return false;
  const auto says = [&](const char* text) { return words.find(text) != std::string::npos; };
  return says("'out of memory'") || says("Failed to CUDA malloc") || says("Failed to CUDA calloc");
}

std::optional<Bytes> Nccl::memory_of(nccl::Comm comm) const {
  std::uint64_t bytes = 0;
  if (memory_ == nullptr || memory_(comm, nccl::kGpuMemTotal, &bytes) != nccl::kSuccess) return std::nullopt;
  return bytes;
}

}  // namespace ledger::cuda
