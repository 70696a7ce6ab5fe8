// nf4.h - 4-bit NormalFloat and 8-bit dynamic quantisation in blocks, as bitsandbytes does them.
//
// Sources: Dettmers et al., QLoRA (2023), appendix E; bitsandbytes 0.50 functional.py (create_dynamic_map,
// get_4bit_type), backends/default/ops.py (quantize_4bit) and csrc/kernels.cu (dQuantizeNF4: the same codes by
// thresholds halfway).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/nf4.h"  // kNf4

namespace ledger::host {

inline constexpr std::size_t kNf4Block = 64;      // weights a scale
inline constexpr std::size_t kAbsmaxBlock = 256;  // scales a second scale

// create_dynamic_map(signed=True, max_exponent_bits=7, total_bits=8), ascending.
const std::array<float, 256>& dynamic_map();

struct Blocks {
  std::vector<std::uint8_t> codes;  // one a value: index into the code table
  std::vector<float> absmax;        // one a block
};

// Each block is divided by its largest magnitude; each quotient becomes the nearest value of `table` (ascending).
Blocks quantise_blocks(std::span<const float> values, std::size_t block, std::span<const float> table);

// Two codes a byte, the first in the high half; an odd one out is joined by the code of 0.
std::vector<std::uint8_t> packed(std::span<const std::uint8_t> codes);

}  // namespace ledger::host
