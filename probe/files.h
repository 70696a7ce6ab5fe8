// files.h - reading inputs and writing results, with failures said in words.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace ledger {

struct FileText {
  std::string text;
  std::string error;  // empty when read; else one sentence for the user
};

// `path` or "-" for standard input. Anything larger than `limit` bytes is refused before it is read.
FileText read_file(const std::string& path, std::uint64_t limit);

// Writes beside `path` and renames, so that a reader never sees half a file; "-" is standard output. Returns an error
// or "".
std::string write_file(const std::string& path, const std::string& text);

}  // namespace ledger
