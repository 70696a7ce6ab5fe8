// host_view.h - what a host kernel is given: strided windows on memory, and one call's operands.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/base/dtype.h"
#include "core/trace/trace.h"
#include "probe/ranks/communicator.h"

namespace ledger::host {

// A View resolved to memory. `data` is the window's first element; strides count elements, 0 where broadcast.
struct HostView {
  std::byte* data = nullptr;
  DType dtype = DType::f32;
  std::uint8_t rank = 0;
  std::array<std::uint64_t, kMaxRank> sizes{};
  std::array<std::int64_t, kMaxRank> strides{};

  std::uint64_t numel() const {
    std::uint64_t n = 1;
    for (std::size_t i = 0; i < rank; ++i)
      n *= sizes[i];
    return n;
  }
  std::uint64_t last_size() const { return rank == 0 ? 1 : sizes[rank - 1u]; }
  std::ptrdiff_t byte_stride(std::size_t dim) const {
    return static_cast<std::ptrdiff_t>(strides[dim]) * static_cast<std::ptrdiff_t>(element_bytes(dtype));
  }
};

// Indices [first, first+count) of a dimension.
inline HostView part_of(const HostView& view, std::size_t dim, std::uint64_t first, std::uint64_t count) {
  HostView part = view;
  part.data += static_cast<std::ptrdiff_t>(first) * view.byte_stride(dim);
  part.sizes[dim] = count;
  return part;
}

// Two dimensions of a view; strides count bytes.
struct Matrix {
  std::byte* data = nullptr;
  DType dtype = DType::f32;
  std::uint64_t rows = 0;
  std::uint64_t cols = 0;
  std::ptrdiff_t row_stride = 0;
  std::ptrdiff_t col_stride = 0;

  std::byte* at(std::uint64_t row, std::uint64_t col) const {
    return data + static_cast<std::ptrdiff_t>(row) * row_stride + static_cast<std::ptrdiff_t>(col) * col_stride;
  }
};

// The last two dimensions of `view` at the given indices of those before them.
inline Matrix matrix_of(const HostView& view, std::uint64_t first = 0, std::uint64_t second = 0) {
  const std::array<std::uint64_t, 2> index = {first, second};
  const std::size_t leading = view.rank - 2u;
  Matrix m{view.data,
           view.dtype,
           view.sizes[leading],
           view.sizes[leading + 1],
           view.byte_stride(leading),
           view.byte_stride(leading + 1)};
  for (std::size_t i = 0; i < leading; ++i)
    m.data += static_cast<std::ptrdiff_t>(index[i]) * view.byte_stride(i);
  return m;
}

// Dense and row-major over `data`, in the shape of `like`.
inline HostView dense_view(const HostView& like, std::byte* data, DType dtype) {
  HostView view = like;
  view.data = data;
  view.dtype = dtype;
  std::int64_t stride = 1;
  for (std::size_t i = like.rank; i-- > 0;) {
    view.strides[i] = stride;
    stride *= static_cast<std::int64_t>(like.sizes[i]);
  }
  return view;
}

// Element i of an int64 view's first dimension.
inline std::int64_t int_at(const HostView& view, std::uint64_t i) {
  std::int64_t value = 0;
  std::memcpy(&value, view.data + static_cast<std::ptrdiff_t>(i) * view.byte_stride(0), sizeof value);
  return value;
}

// The same as an index of something that has `limit`; nothing where it lies outside.
inline std::optional<std::uint64_t> index_at(const HostView& view, std::uint64_t i, std::uint64_t limit) {
  const std::int64_t value = int_at(view, i);
  if (value < 0 || static_cast<std::uint64_t>(value) >= limit) return std::nullopt;
  return static_cast<std::uint64_t>(value);
}

// What copy_to_host put aside, by number.
using HostMemory = std::unordered_map<std::int64_t, std::vector<std::byte>>;

struct KernelCall {
  std::span<const HostView> in;
  std::span<const HostView> out;
  const Attr& attr;
  const Trace& trace;
  std::uint64_t seed;  // of tokens, input features and dropout
  const Run& run;
  std::uint64_t forward_pass;  // how many forward phases have begun
  HostMemory& host_memory;
  Communicator* ranks = nullptr;  // of which this is one; null where a kernel is called by itself
  const char* error = nullptr;    // set by a kernel that cannot do what it was asked

  std::uint64_t rank() const { return ranks == nullptr ? 0 : ranks->rank(); }
  // The same call of other operands.
  KernelCall with(std::span<const HostView> inputs, std::span<const HostView> outputs, const Attr& other) const {
    return {inputs, outputs, other, trace, seed, run, forward_pass, host_memory, ranks};
  }
};

using KernelFn = void (*)(KernelCall&);

// Computation is in double as soon as one operand is; integers go through double as well, where they are exact to 2^53.
inline bool any_wide(std::span<const HostView> views) {
  for (const HostView& v : views) {
    if (v.dtype == DType::f64 || v.dtype == DType::i64 || v.dtype == DType::i32) return true;
  }
  return false;
}

// Where in the stream of random numbers a dropout begins: kernels_dropout.cc.
std::uint64_t dropout_place(std::uint64_t seed, const Trace& trace, const Run& run, std::uint64_t forward_pass);

// torch.finfo(dtype).min. That of fp32 would round to -inf in 16 bits.
double lowest_finite(DType dtype);

inline bool needs_double(const KernelCall& call) {
  return any_wide(call.in) || any_wide(call.out);
}

}  // namespace ledger::host
