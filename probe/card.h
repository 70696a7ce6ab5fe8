// card.h - which card of the catalogue a GPU is.
#pragma once

#include <string_view>

#include "core/config/gpu.h"

namespace ledger {

// The card that CUDA calls `name` ("NVIDIA A100-SXM4-80GB") and that reports so much memory; nullptr when unknown.
const Gpu* find_card(std::string_view name, Bytes total_bytes);

}  // namespace ledger
