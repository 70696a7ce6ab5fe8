// stand_in_numbers.h - reductions of stand_in_nccl.cc.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "core/base/number_format.h"
#include "probe/cuda/nccl_api.h"

namespace ledger::stand_in {

using namespace ledger::cuda::nccl;

inline std::size_t size_of(DataType type) {
  switch (type) {
    case kFloat64:
    case kInt64:
      return 8;
    case kFloat32:
    case kInt32:
      return 4;
    case kFloat16:
    case kBfloat16:
      return 2;
    default:
      return 1;
  }
}

template <class T>
T at(const char* data, std::size_t i) {
  T value;
  std::memcpy(&value, data + i * sizeof(T), sizeof(T));
  return value;
}

inline double load(const char* data, std::size_t i, DataType type) {
  switch (type) {
    case kFloat64:
      return at<double>(data, i);
    case kFloat32:
      return static_cast<double>(at<float>(data, i));
    case kBfloat16:
      return static_cast<double>(float_from_bf16(at<std::uint16_t>(data, i)));
    case kFloat16:
      return static_cast<double>(float_from_fp16(at<std::uint16_t>(data, i)));
    case kInt64:
      return static_cast<double>(at<std::int64_t>(data, i));
    case kInt32:
      return at<std::int32_t>(data, i);
    case kInt8:
      return at<std::int8_t>(data, i);
    default:
      return at<std::uint8_t>(data, i);
  }
}

template <class T>
void put(char* data, std::size_t i, T value) {
  std::memcpy(data + i * sizeof(T), &value, sizeof(T));
}

inline void store(char* data, std::size_t i, DataType type, double value) {
  switch (type) {
    case kFloat64:
      return put(data, i, value);
    case kFloat32:
      return put(data, i, static_cast<float>(value));
    case kBfloat16:
      return put(data, i, bf16_from_float(static_cast<float>(value)));
    case kFloat16:
      return put(data, i, fp16_from_float(static_cast<float>(value)));
    case kInt64:
      return put(data, i, static_cast<std::int64_t>(value));
    case kInt32:
      return put(data, i, static_cast<std::int32_t>(value));
    case kInt8:
      return put(data, i, static_cast<std::int8_t>(value));
    default:
      return put(data, i, static_cast<std::uint8_t>(value));
  }
}

// By the order of ranks, in double, rounded once.
inline void reduce(const std::vector<std::string>& parts, char* result, std::size_t count, DataType type, RedOp op) {
  for (std::size_t i = 0; i < count; ++i) {
    double value = load(parts[0].data(), i, type);
    for (std::size_t r = 1; r < parts.size(); ++r) {
      const double other = load(parts[r].data(), i, type);
      value = op == kMax ? std::max(value, other) : value + other;
    }
    store(result, i, type, op == kAvg ? value / static_cast<double>(parts.size()) : value);
  }
}

}  // namespace ledger::stand_in
