// shortage.h - memory of a device that was wanted beside the allocator's, and was not there.
#pragma once

#include <optional>

#include "core/base/bytes.h"

namespace ledger {

struct Shortage {
  const char* by = "";                            // who wanted it: "nccl", "messages"
  std::optional<Bytes> requested_bytes = {};      // where that is known
  std::optional<Bytes> taken_bytes = {};          // what it had of the device until then
  std::optional<Bytes> device_bytes_in_use = {};  // by everyone
};

}  // namespace ledger
