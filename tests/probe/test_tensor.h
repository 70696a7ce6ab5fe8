// test_tensor.h - tensors of any strides for running single operators; needs no test framework.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/base/number_format.h"
#include "core/trace/trace.h"

namespace ledger::one_op {

using Sizes = std::vector<std::uint64_t>;

inline double rounded_to(DType dtype, double value) {
  switch (dtype) {
    case DType::f64:
      return value;
    case DType::f32:
      return static_cast<double>(static_cast<float>(value));
    case DType::bf16:
      return static_cast<double>(float_from_bf16(bf16_from_float(static_cast<float>(value))));
    case DType::f16:
      return static_cast<double>(float_from_fp16(fp16_from_float(static_cast<float>(value))));
    default:
      return std::trunc(value);
  }
}

// Distance between neighbouring values near 1.
inline double epsilon(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 0x1p-52;
    case DType::f32:
      return 0x1p-23;
    case DType::bf16:
      return 0x1p-7;
    default:
      return 0x1p-10;
  }
}

// A strided window on `memory`, as View is on a storage.
struct TestTensor {
  DType dtype = DType::f64;
  Sizes sizes;
  std::vector<std::int64_t> strides;
  std::uint64_t offset = 0;
  std::vector<double> memory;

  std::uint64_t numel() const {
    std::uint64_t n = 1;
    for (const std::uint64_t size : sizes)
      n *= size;
    return n;
  }
  std::size_t place(std::uint64_t index) const {  // of the index-th element in row-major order
    std::int64_t at = static_cast<std::int64_t>(offset);
    for (std::size_t i = sizes.size(); i-- > 0;) {
      at += static_cast<std::int64_t>(index % sizes[i]) * strides[i];
      index /= sizes[i];
    }
    return static_cast<std::size_t>(at);
  }
  double operator[](std::uint64_t index) const { return memory[place(index)]; }
  std::vector<double> values() const {
    std::vector<double> result(numel());
    for (std::uint64_t i = 0; i < result.size(); ++i)
      result[i] = (*this)[i];
    return result;
  }
};

inline TestTensor dense(DType dtype, const Sizes& sizes, std::vector<double> values) {
  TestTensor t{dtype, sizes, std::vector<std::int64_t>(sizes.size()), 0, std::move(values)};
  std::int64_t stride = 1;
  for (std::size_t i = sizes.size(); i-- > 0;) {
    t.strides[i] = stride;
    stride *= static_cast<std::int64_t>(sizes[i]);
  }
  for (double& value : t.memory)
    value = rounded_to(dtype, value);
  return t;
}

inline TestTensor filled(DType dtype, const Sizes& sizes, double value) {
  TestTensor t = dense(dtype, sizes, {});
  t.memory.assign(t.numel(), value);
  return t;
}

// An output: NaN until it is written.
inline TestTensor empty(DType dtype, const Sizes& sizes) {
  return filled(dtype, sizes, info(dtype).floating ? std::numeric_limits<double>::quiet_NaN() : -1);
}

inline TestTensor transpose(TestTensor t, std::size_t a, std::size_t b) {
  std::swap(t.sizes[a], t.sizes[b]);
  std::swap(t.strides[a], t.strides[b]);
  return t;
}

// Its storage and view, the next of the trace.
inline void add_tensor(Trace& trace, const TestTensor& t) {
  const auto id = static_cast<StorageId>(trace.storages.size());
  StorageInfo storage;
  storage.bytes = t.memory.size() * element_bytes(t.dtype);
  storage.dtype = t.dtype;
  trace.storages.push_back(storage);
  View view;
  view.storage = id;
  view.dtype = t.dtype;
  view.rank = static_cast<std::uint8_t>(t.sizes.size());
  std::copy(t.sizes.begin(), t.sizes.end(), view.sizes.begin());
  std::copy(t.strides.begin(), t.strides.end(), view.strides.begin());
  view.offset = t.offset;
  trace.views.push_back(view);
}

}  // namespace ledger::one_op
