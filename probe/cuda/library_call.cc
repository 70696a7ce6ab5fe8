#include "probe/cuda/library_call.h"

#include <utility>

namespace ledger::cuda {
namespace {

using device::Operand;
using device::Product;

// Operands of one floating dtype; 16-bit ones may also make an fp32 result (gradients kept in fp32).
bool types_go_together(const Product& p) {
  if (p.a.dtype != p.b.dtype || !info(p.a.dtype).floating) return false;
  const bool sixteen = p.a.dtype == DType::bf16 || p.a.dtype == DType::f16;
  return p.out.dtype == p.a.dtype || (sixteen && p.out.dtype == DType::f32);
}

// The library adds a vector along our rows in the result's dtype, and none in fp64.
bool bias_goes_along(const Product& p) {
  if (p.bias == nullptr) return true;
  return p.bias->dtype == p.out.dtype && p.out.dtype != DType::f64 && p.out.sizes[0] == 1 &&
         (p.bias->strides[1] == 0 || p.out.sizes[1] == 1) && (p.bias->strides[2] == 1 || p.out.sizes[2] == 1);
}

// [1] and [2] of a batch of our row-major matrices, as the library sees one.
std::optional<ColumnMajor> column_major(const Operand& x) {
  const std::uint64_t rows = x.sizes[1], columns = x.sizes[2];
  const std::int64_t down = x.strides[1], across = x.strides[2];
  const auto reaches = [](std::int64_t stride, std::uint64_t size) {
    return stride >= static_cast<std::int64_t>(size);
  };
  if ((columns == 1 || across == 1) && (rows == 1 || reaches(down, columns))) {
    const auto leading = rows == 1 ? static_cast<std::int64_t>(columns) : down;
    return ColumnMajor{x.data, x.dtype, columns, rows, leading, x.strides[0], false};
  }
  if ((rows == 1 || down == 1) && (columns == 1 || reaches(across, rows))) {
    const auto leading = columns == 1 ? static_cast<std::int64_t>(rows) : across;
    return ColumnMajor{x.data, x.dtype, rows, columns, leading, x.strides[0], true};
  }
  return std::nullopt;
}

Operand transposed(Operand x) {
  std::swap(x.sizes[1], x.sizes[2]);
  std::swap(x.strides[1], x.strides[2]);
  return x;
}

}  // namespace

std::optional<LibraryCall> library_call(const Product& p) {
  if (!types_go_together(p) || !bias_goes_along(p) || p.a.sizes[2] == 0) return std::nullopt;
  const std::optional<ColumnMajor> a = column_major(p.a), b = column_major(p.b), out = column_major(p.out);
  if (!a || !b || !out) return std::nullopt;
  if (out->transposed) {  // the result's columns lie side by side: the transposed problem has rows that do
    if (p.bias != nullptr) return std::nullopt;
    return library_call({transposed(p.b), transposed(p.a), transposed(p.out)});
  }
  LibraryCall call{*b, *a, *out, p.out.sizes[0], p.a.sizes[2], nullptr};
  if (p.bias != nullptr) call.bias = p.bias->data;
  return call;
}

}  // namespace ledger::cuda
