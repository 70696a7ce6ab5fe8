// shared_library.h - a library of the CUDA family, loaded when it is needed, so that probe starts where there is none.
#pragma once

#include <string>
#include <vector>

namespace ledger::cuda {

// What to look for, in order of preference: sonames, newest first.
struct LibraryNames {
  const char* title;                 // "cuBLASLt"
  std::vector<const char*> sonames;  // "libcublasLt.so.13", ...
  const char* purpose;               // "matrix products": what cannot be done without it
  const char* wheel;                 // the pip package that carries it, "nvidia-cublas"; nullptr when the driver does
};

class SharedLibrary {
 public:
  SharedLibrary() = default;
  // Looks in every folder of $PROBE_LIB_PATH, then where the loader looks, then in the toolkit's usual folders.
  explicit SharedLibrary(const LibraryNames& names);
  ~SharedLibrary();
  SharedLibrary(SharedLibrary&& other) noexcept;
  SharedLibrary& operator=(SharedLibrary&& other) noexcept;

  bool loaded() const { return handle_ != nullptr; }
  const std::string& soname() const { return soname_; }  // the one that was found
  // What is missing, where it was looked for and what to do; empty when it was loaded.
  const std::string& error() const { return error_; }

  // The function of this name, or nullptr; the name is then remembered as missing().
  void* symbol(const char* name);
  void* optional_symbol(const char* name) const;  // that newer versions have; nullptr where it is not
  const std::string& missing() const { return missing_; }

 private:
  void* handle_ = nullptr;
  std::string soname_, error_, missing_;
};

}  // namespace ledger::cuda
