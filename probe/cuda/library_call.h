// library_call.h - a matrix product in the terms of cuBLASLt: column-major matrices, perhaps transposed.
//
// The library knows columns that lie side by side; ours are rows. A row-major [R,C] is a column-major [C,R], so that
// out = a b becomes out' = b' a' with the operands exchanged and nothing copied. No CUDA here: tests try it on the
// host.
#pragma once

#include <optional>

#include "probe/device/call.h"

namespace ledger::cuda {

// Elements of one column lie side by side, columns `leading` apart; `transposed`: the product takes it the other way.
struct ColumnMajor {
  std::byte* data = nullptr;
  DType dtype = DType::f32;
  std::uint64_t rows = 0, columns = 0;
  std::int64_t leading = 0;
  std::int64_t batch = 0;  // elements from one matrix of the batch to the next
  bool transposed = false;
};

struct LibraryCall {
  ColumnMajor left, right, result;  // result = left right, each transposed if it says so
  std::uint64_t batches = 1, depth = 0;
  const std::byte* bias = nullptr;  // added to every column of the result, in its dtype
};

// nullopt for what the library does not take: mixed dtypes, no stride of 1, a bias that is no vector along the rows.
std::optional<LibraryCall> library_call(const device::Product& product);

}  // namespace ledger::cuda
