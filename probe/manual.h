// manual.h - the man page, docs/cli.md and the shells' completions, written from the table of flags: `probe --generate
// man`.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace ledger {

// One flag, as the command line knows it.
struct FlagRow {
  std::string name;  // "--seq"
  std::string type;  // "FILE", "host|cuda", or empty
  std::string help;
  std::string group;                 // "Recipe" for recipe keys, or empty
  std::vector<std::string> choices;  // what may follow it; empty: anything
  bool takes_value = true;
};

inline constexpr const char* kExitCodes =
    "0 ok, 1 internal error, 2 usage, 3 out of memory (a result: the JSON is complete), 4 --check failed,\n"
    "5 out of time, 6 GPU busy, 7 a rank did not come or was lost, 69 no usable GPU, 128+n ended by signal n.";

inline constexpr const char* kManuals[] = {"man", "markdown", "bash", "zsh", "fish"};

// One of kManuals; empty for no such kind.
std::string manual(const std::string& kind, std::span<const FlagRow> flags);

}  // namespace ledger
