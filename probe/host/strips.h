// strips.h - runs of elements between memory in any dtype and buffers of the compute type (float or double).
//
// Kernels are written once per compute type; all knowledge of storage dtypes is here. Storing rounds once, to nearest
// even.
#pragma once

#include <cstddef>

#include "core/base/dtype.h"

namespace ledger::host {

template <class C>
void load_strip(C* to, const std::byte* from, std::ptrdiff_t byte_stride, std::size_t count, DType dtype);

template <class C>
void store_strip(std::byte* to, std::ptrdiff_t byte_stride, const C* from, std::size_t count, DType dtype);

template <class C>
C load_one(const std::byte* from, DType dtype) {
  C value{};
  load_strip(&value, from, 0, 1, dtype);
  return value;
}

template <class C>
void store_one(std::byte* to, C value, DType dtype) {
  store_strip(to, 0, &value, 1, dtype);
}

}  // namespace ledger::host
