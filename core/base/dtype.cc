#include "core/base/dtype.h"

#include <array>
#include <cstddef>

namespace ledger {
namespace {

constexpr std::array<DTypeInfo, static_cast<std::size_t>(DType::count_)> kDTypes = {{
    {"fp64", "float64", 8, true},
    {"fp32", "float32", 4, true},
    {"bf16", "bfloat16", 2, true},
    {"fp16", "float16", 2, true},
    {"int64", "int64", 8, false},
    {"int32", "int32", 4, false},
    {"uint8", "uint8", 1, false},
    {"int8", "int8", 1, false},
    {"bool", "bool", 1, false},
}};

}  // namespace

const DTypeInfo& info(DType dtype) {
  return kDTypes[static_cast<std::size_t>(dtype)];
}

}  // namespace ledger
