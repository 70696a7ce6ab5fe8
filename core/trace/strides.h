// strides.h - the layout rules of ATen that decide whether a reshape copies and how results are laid out.
#pragma once

#include <optional>

#include "core/trace/tensor.h"

namespace ledger {

Strides contiguous_strides(const Shape& shape);
void set_contiguous_strides(const Shape& shape, Strides& strides);  // where they stay

// Dimensions of size 1 may have any stride, as in PyTorch.
bool strides_contiguous(const Shape& shape, const Strides& strides);

// Strides that view `x` as `shape` without copying, if there are any. Source: aten/src/ATen/TensorUtils.cpp,
// computeStride.
std::optional<Strides> view_strides(const Tensor& x, const Shape& shape);

// Strides of an element-wise result of `shape`: dense, in the dimension order of the first operand that has all of it.
// nullopt when that is the contiguous layout. Source: aten/src/ATen/TensorIterator.cpp, reorder_dimensions.
std::optional<Strides> elementwise_strides(const Shape& shape, const Tensor& a, const Tensor* b = nullptr);

}  // namespace ledger
