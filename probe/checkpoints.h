// checkpoints.h - published models that probe knows by name: the files of core/config/checkpoints, built in.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/base/json.h"

namespace ledger {

struct CheckpointFile {
  const char* id;    // the file's name
  const char* json;  // {"id","name","hub","source","params","config"}
};

// In the order of their ids. Written by CMake (probe/CMakeLists.txt).
std::span<const CheckpointFile> checkpoint_files();

// Its config.json, by id or by name on the hub ("llama-3-8b", "meta-llama/Meta-Llama-3-8B"); case does not count.
std::optional<Json> checkpoint_config(std::string_view name);

// The id most like `name`, or "" when none is.
std::string nearest_checkpoint(std::string_view name);

// A line for each: id, number of parameters, family, name on the hub.
std::string checkpoint_table();

}  // namespace ledger
