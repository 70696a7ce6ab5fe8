#include "probe/files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

namespace ledger {
namespace {

struct Close {
  void operator()(std::FILE* file) const {
    if (file != stdin) std::fclose(file);
  }
};
using File = std::unique_ptr<std::FILE, Close>;

std::string failed(const char* verb, const std::string& path) {
  return std::string("cannot ") + verb + " '" + path + "': " + std::strerror(errno) + ".";
}

std::string too_large(const std::string& path, std::uint64_t limit) {
  return "'" + path + "' is larger than " + std::to_string(limit >> 20) +
         " MiB. A config.json or recipe has a few KiB: is this the file you meant?";
}

bool write_all(const std::string& path, const std::string& text) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return false;
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size() && std::fflush(file) == 0 &&
                       fsync(fileno(file)) == 0;
  return std::fclose(file) == 0 && written;
}

}  // namespace

FileText read_file(const std::string& path, std::uint64_t limit) {
  struct stat info {};
  if (path != "-" && stat(path.c_str(), &info) == 0) {
    if (S_ISDIR(info.st_mode)) return {"", "'" + path + "' is a folder. Name the config.json in it."};
    if (S_ISREG(info.st_mode) && static_cast<std::uint64_t>(info.st_size) > limit) return {"", too_large(path, limit)};
  }
  const File file(path == "-" ? stdin : std::fopen(path.c_str(), "rb"));
  if (!file) return {"", failed("read", path)};
  FileText result;
  char buffer[65536];
  while (const std::size_t got = std::fread(buffer, 1, sizeof buffer, file.get())) {
    result.text.append(buffer, got);
    if (result.text.size() > limit) return {"", too_large(path, limit)};
  }
  if (std::ferror(file.get()) != 0) return {"", failed("read", path)};
  return result;
}

std::string write_file(const std::string& path, const std::string& text) {
  if (path == "-") {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fputc('\n', stdout);
    return std::fflush(stdout) == 0 ? "" : failed("write", "standard output");
  }
  const std::string partial = path + ".part" + std::to_string(getpid());
  if (!write_all(partial, text + "\n") || std::rename(partial.c_str(), path.c_str()) != 0) {
    const std::string error = failed("write", path);
    std::remove(partial.c_str());
    return error;
  }
  return "";
}

}  // namespace ledger
