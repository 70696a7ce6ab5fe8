// memory_size.h - "24GiB", "24 GB", "25769803776": sizes as people type them.
#pragma once

#include <optional>
#include <string_view>

#include "core/base/bytes.h"

namespace ledger {

// A decimal number with an optional unit: B, KiB..TiB (binary), KB..TB (decimal), case and a space do not matter, "GI"
// and "G" are GiB as in Kubernetes' and nvidia-smi's use. Fractions of a byte are cut. Nothing when it is none of these
// or does not fit 64 bits.
std::optional<Bytes> memory_size(std::string_view text);

}  // namespace ledger
