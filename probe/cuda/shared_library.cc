#include "probe/cuda/shared_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

namespace ledger::cuda {
namespace {

constexpr const char* kToolkitFolders[] = {"/usr/local/cuda/lib64", "/usr/local/cuda/lib",
                                           "/usr/lib/wsl/lib"};  // WSL 2 keeps the driver's libraries in the last
constexpr const char* kPathVariable = "PROBE_LIB_PATH";

std::vector<std::string> folders_of(const char* list) {
  std::vector<std::string> folders;
  std::string text = list == nullptr ? "" : list;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(':', begin), text.size());
    if (end > begin) folders.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return folders;
}

struct Search {
  void* handle = nullptr;
  std::string broken;  // a file that is there and does not load, with the loader's reason

  // RTLD_LAZY: functions that this build never calls need not resolve.
  bool try_file(const std::string& path) {
    handle = dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);
    if (handle != nullptr) return true;
    const char* reason = dlerror();
    std::error_code ignored;
    if (path.find('/') != std::string::npos && std::filesystem::exists(path, ignored)) {
      broken = reason == nullptr ? path : reason;
    }
    return false;
  }
};

std::string not_found(const LibraryNames& names, const std::vector<std::string>& own_folders,
                      const std::string& broken) {
  std::string text = std::string(names.title) + " is needed for " + names.purpose + " and was not found: ";
  for (std::size_t i = 0; i < names.sonames.size(); ++i)
    text += std::string(i == 0 ? "" : ", ") + names.sonames[i];
  text += own_folders.empty() ? std::string(", looked for where the loader looks")
                              : ", looked for in $" + std::string(kPathVariable) + ", where the loader looks";
  text += " (LD_LIBRARY_PATH, ldconfig) and in " + std::string(kToolkitFolders[0]) + ".";
  if (!broken.empty()) text += " One is there and does not load: " + broken + ".";
  if (names.wheel == nullptr) return text + " It belongs to the NVIDIA driver.";
  return text + " Install the CUDA toolkit, or, if pip's " + names.wheel + " is installed, set " + kPathVariable +
         " to the folder that this prints: python3 -c \"import site, glob; "
         "print(*{f.rsplit('/', 1)[0] for s in site.getsitepackages() for f in glob.glob(s + '/nvidia/**/" +
         names.sonames[0] + "', recursive=True)})\"";
}

}  // namespace

SharedLibrary::SharedLibrary(const LibraryNames& names) {
  const std::vector<std::string> own = folders_of(std::getenv(kPathVariable));
  Search search;
  for (const char* soname : names.sonames) {
    soname_ = soname;
    bool found = false;
    for (std::size_t i = 0; i < own.size() && !found; ++i)
      found = search.try_file(own[i] + "/" + soname);
    found = found || search.try_file(soname);
    for (std::size_t i = 0; i < std::size(kToolkitFolders) && !found; ++i)
      found = search.try_file(std::string(kToolkitFolders[i]) + "/" + soname);
    if (!found) continue;
    handle_ = search.handle;
    return;
  }
  soname_.clear();
  error_ = not_found(names, own, search.broken);
}

SharedLibrary::~SharedLibrary() {
  if (handle_ != nullptr) dlclose(handle_);
}

SharedLibrary::SharedLibrary(SharedLibrary&& other) noexcept
    : handle_(std::exchange(other.handle_, nullptr)),
      soname_(std::move(other.soname_)),
      error_(std::move(other.error_)),
      missing_(std::move(other.missing_)) {}

SharedLibrary& SharedLibrary::operator=(SharedLibrary&& other) noexcept {
  std::swap(handle_, other.handle_);
  soname_ = std::move(other.soname_);
  error_ = std::move(other.error_);
  missing_ = std::move(other.missing_);
  return *this;
}

void* SharedLibrary::optional_symbol(const char* name) const {
  return handle_ == nullptr ? nullptr : dlsym(handle_, name);
}

void* SharedLibrary::symbol(const char* name) {
  void* address = optional_symbol(name);
  if (address == nullptr && missing_.empty()) missing_ = name;
  return address;
}

}  // namespace ledger::cuda
