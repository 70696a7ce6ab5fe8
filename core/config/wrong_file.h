// wrong_file.h - names a file that is not a model configuration by what only such a file has.
//
// A model folder on the hub holds a dozen JSON files, and people drop the neighbour of the one that is meant. The ids
// are Problem::read of wrong_file; docs/problems.md lists them.
#pragma once

#include <string_view>

#include "core/base/json.h"

namespace ledger {

// From the first bytes: "gguf", "safetensors", "zip", "pickle", "gzip", "hdf5", "html", "xml", "yaml", "python",
// "git_lfs_pointer", "utf16_text", "empty", and "tokenizer" for one that is too large to parse; "" when it may be JSON.
std::string_view wrong_file_by_bytes(std::string_view text);

// From telling keys: "tokenizer", "tokenizer_config", "generation_config", ..., "json_list"; "" when nothing tells.
std::string_view wrong_file_by_keys(const Json& root);

}  // namespace ledger
