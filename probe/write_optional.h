// write_optional.h - a number in a file, or null where it could not be had.
#pragma once

#include <optional>

#include "core/base/json.h"

namespace ledger {

inline void write_optional(JsonWriter& out, const char* key, std::optional<std::uint64_t> number) {
  out.key(key);
  if (number) {
    out.value(*number);
  } else {
    out.null();
  }
}

}  // namespace ledger
