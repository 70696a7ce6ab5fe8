// dtype.h - element types: name, size, and which are floating point.
#pragma once

#include <cstdint>

#include "core/base/bytes.h"

namespace ledger {

enum class DType : std::uint8_t { f64, f32, bf16, f16, i64, i32, u8, i8, boolean, count_ };

struct DTypeInfo {
  const char* name;        // as JSON and the page print it: "bf16"
  const char* torch_name;  // as config.json and PyTorch print it: "bfloat16"
  Bytes bytes;             // per element
  bool floating;
};

const DTypeInfo& info(DType dtype);

inline Bytes element_bytes(DType dtype) {
  return info(dtype).bytes;
}

}  // namespace ledger
