// megatron_tensors.h - views and steps that Megatron's operators are written in.
#pragma once

#include "core/models/megatron_ops.h"
#include "core/trace/strides.h"

namespace ledger::megatron {

// All tokens, where a rank holds one of `tp` parts of them.
inline Shape gathered_shape(const Shape& shape, std::uint64_t tp) {
  Shape whole = shape;
  whole.set(0, {times(shape[0].size, tp), Sym::s});
  return whole;
}

inline Shape scattered_shape(const Shape& shape, std::uint64_t tp) {
  Shape part = shape;
  part.set(0, {shape[0].size / tp, Sym::none});
  return part;
}

inline Dim times_dim(Dim a, Dim b) {
  return {times(a.size, b.size), Sym::none};
}

inline Shape rows_of(const Shape& shape) {
  return {shape[0], shape[1]};
}

// [s, b, n] as a matrix of tokens.
inline Tensor matrix(const Tensor& x) {
  const Dim width = x.dim(-1);
  const Shape shape{{x.shape().numel() / width.size, Sym::none}, width};
  return x.tape().view_of(x, shape, *view_strides(x, shape), 0);
}

inline Tensor turned(const Tensor& m) {
  const Strides& strides = m.impl()->strides;
  return m.tape().view_of(m, {m.dim(1), m.dim(0)}, {strides[1], strides[0]}, 0);
}

// The first elements of a buffer.
inline Tensor beginning(const Tensor& buffer, const Shape& shape) {
  return buffer.tape().view_of(buffer, shape, contiguous_strides(shape), 0);
}

// Statistics [s, b] beside what they are of.
inline Tensor beside(const Tensor& statistics) {
  const Shape shape{statistics.dim(0), statistics.dim(1), kOne};
  return statistics.tape().view_of(statistics, shape, {statistics.impl()->strides[0], statistics.impl()->strides[1], 0},
                                   0);
}

inline Tensor row(const Tensor& m, std::uint64_t index) {
  return m.tape().view_of(m, {m.dim(1)}, {1}, times(index, m.dim(1).size));
}

// The first or second half of the last dimension.
inline Tensor half(const Tensor& x, std::uint64_t which) {
  Shape shape = x.shape();
  const Dim width{x.dim(-1).size / 2, Sym::none};
  shape.set_last(width);
  return x.tape().view_of(x, shape, x.impl()->strides, times(which, width.size));
}

inline Tensor made(OpKind op, const Tensor& a, const Shape& shape, DType dtype, Attr attr = {}) {
  Tensor result = a.tape().empty(op, shape, dtype);
  a.tape().run(op, {&a}, {&result}, attr);
  return result;
}

}  // namespace ledger::megatron
