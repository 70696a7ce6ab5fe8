// nf4_decode.h - NF4 weights read one at a time. Codes and scales are dense, as bitsandbytes keeps them.
#pragma once

#include "probe/device/memory.h"
#include "probe/host/nf4.h"

namespace ledger::LEDGER_DEVICE {

// The scale of each block of weights: fp32, or a code of a map times a second scale, plus an offset.
struct Nf4Scales {
  const float* plain = nullptr;
  const std::uint8_t* codes = nullptr;
  const float *offset = nullptr, *absmax = nullptr, *map = nullptr;

  explicit Nf4Scales(const Operand& scales, const Operand* of_offset = nullptr, const Operand* of_absmax = nullptr,
                     const Operand* of_map = nullptr) {
    if (scales.dtype != DType::u8) {
      plain = reinterpret_cast<const float*>(scales.data);
      return;
    }
    codes = reinterpret_cast<const std::uint8_t*>(scales.data);
    if (of_offset != nullptr) offset = reinterpret_cast<const float*>(of_offset->data);
    absmax = reinterpret_cast<const float*>(of_absmax->data);
    map = reinterpret_cast<const float*>(of_map->data);
  }
  LEDGER_DEVICE_ONLY float of_block(std::uint64_t block) const {
    if (codes == nullptr) return plain[block];
    const float scale = map[codes[block]] * absmax[block / host::kAbsmaxBlock];
    return offset == nullptr ? scale : scale + *offset;
  }
};

struct Nf4Weight {
  const std::uint8_t* codes;
  const float* table;
  Nf4Scales scales;

  Nf4Weight(const Operand& packed, const Operand& code, const Nf4Scales& of_blocks)
      : codes(reinterpret_cast<const std::uint8_t*>(packed.data)),
        table(reinterpret_cast<const float*>(code.data)),
        scales(of_blocks) {}
  LEDGER_DEVICE_ONLY float at(std::uint64_t i) const {
    const unsigned pair = codes[i / 2];
    return table[i % 2 == 0 ? pair >> 4 : pair & 15u] * scales.of_block(i / host::kNf4Block);
  }
};

}  // namespace ledger::LEDGER_DEVICE
