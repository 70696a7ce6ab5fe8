#include "core/trace/strides.h"

namespace ledger {

void set_contiguous_strides(const Shape& shape, Strides& strides) {
  std::uint64_t step = 1;
  for (std::size_t i = kMaxRank; i > shape.rank; --i)
    strides[i - 1] = 0;
  for (std::size_t i = shape.rank; i > 0; --i) {
    strides[i - 1] = static_cast<std::int64_t>(step);
    step = times(step, shape.sizes[i - 1]);
  }
}

Strides contiguous_strides(const Shape& shape) {
  Strides strides;
  set_contiguous_strides(shape, strides);
  return strides;
}

bool strides_contiguous(const Shape& shape, const Strides& strides) {
  std::uint64_t step = 1;
  for (std::size_t i = shape.rank; i > 0; --i) {
    const std::uint64_t size = shape.sizes[i - 1];
    if (size != 1 && strides[i - 1] != static_cast<std::int64_t>(step)) return false;
    step = times(step, size);
  }
  return true;
}

// Walks the old dimensions from the back in chunks that are contiguous among themselves; every chunk must be filled by
// whole new dimensions.
std::optional<Strides> view_strides(const Tensor& x, const Shape& shape) {
  if (x.is_contiguous()) return contiguous_strides(shape);
  const Shape& old = x.shape();
  const Strides& old_strides = x.impl()->strides;
  Strides strides{};
  std::size_t next = shape.rank;
  std::int64_t chunk_stride = old_strides[old.rank - 1u];
  std::uint64_t chunk = 1;
  std::uint64_t filled = 1;
  for (std::size_t i = old.rank; i > 0; --i) {
    chunk = times(chunk, old[i - 1].size);
    const bool chunk_ends =
        i == 1 || (old[i - 2].size != 1 && old_strides[i - 2] != static_cast<std::int64_t>(chunk) * chunk_stride);
    if (!chunk_ends) continue;
    while (next > 0 && (filled < chunk || shape[next - 1].size == 1)) {
      strides[next - 1] = static_cast<std::int64_t>(filled) * chunk_stride;
      filled = times(filled, shape[next - 1].size);
      --next;
    }
    if (filled != chunk) return std::nullopt;
    if (i > 1) {
      chunk_stride = old_strides[i - 2];
      chunk = filled = 1;
    }
  }
  if (next != 0) return std::nullopt;
  return strides;
}

std::optional<Strides> elementwise_strides(const Shape& shape, const Tensor& a, const Tensor* b) {
  if (a.is_contiguous() && a.shape().same_sizes(shape)) return std::nullopt;  // nearly always
  const Tensor* guide = nullptr;
  for (const Tensor* operand : {&a, b}) {
    if (operand != nullptr && operand->shape().same_sizes(shape)) {
      guide = operand;
      break;
    }
  }
  if (guide == nullptr || guide->is_contiguous()) return std::nullopt;
  const Strides& order_by = guide->impl()->strides;
  std::array<std::size_t, kMaxRank>
      order{};  // dimensions, largest stride first; equal and zero strides keep their place
  for (std::size_t i = 0; i < shape.rank; ++i) {
    if (order_by[i] == 0 && shape[i].size != 1) return std::nullopt;
    std::size_t at = i;
    while (at > 0 && shape[i].size != 1 && order_by[order[at - 1]] < order_by[i]) {
      order[at] = order[at - 1];
      --at;
    }
    order[at] = i;
  }
  Strides strides{};
  std::uint64_t step = 1;
  for (std::size_t i = shape.rank; i > 0; --i) {
    strides[order[i - 1]] = static_cast<std::int64_t>(step);
    step = times(step, shape[order[i - 1]].size);
  }
  return strides;
}

}  // namespace ledger
