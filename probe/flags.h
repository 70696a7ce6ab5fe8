// flags.h - the command line: probe's own flags, and one flag per recipe key.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/config/recipe.h"

namespace ledger {

enum class Device : std::uint8_t { automatic, host, cuda };

struct Flags {
  std::string model;                                      // path of a config.json, "-", or a checkpoint's name
  std::string recipe;                                     // path of a recipe.json, or empty
  std::string json;                                       // where the result goes, "-" for stdout, or empty
  Recipe flags;                                           // filled in over the recipe file by resolve()
  std::vector<std::pair<std::string, std::string>> keys;  // recipe keys given as flags, in order
  std::string generate;                                   // "man" or a shell, or empty
  std::string explain_oom;                                // path of an error text, "-", or empty
  std::string as_rank;                                    // "3/8", "worst", or empty
  Device device = Device::automatic;
  bool dry_run = false;
  bool list_gpus = false;
  bool list_models = false;
  bool version = false;
  bool quiet = false;
  bool allow_busy = false;
  bool paranoid = false;
  double timeout_s = 0, budget_s = 0;  // 0: none
  double rank_timeout_s = 60;
  std::uint32_t steps = 3;
  std::uint32_t warmup = 1;
  double check_percent = -1;  // < 0: not asked for
};

struct ParsedFlags {
  Flags flags;
  std::optional<int> exit_code;  // set when there is nothing left to do: help was printed, or usage was wrong (2)
};

ParsedFlags parse_flags(int argc, const char* const* argv);

}  // namespace ledger
