#include "core/parallel/flat.h"

#include "core/trace/strides.h"

namespace ledger::flat {

Shape shape(std::uint64_t count) {
  return {{count, Sym::none}};
}

Tensor shaped(const Tensor& buffer, const Shape& shape, std::uint64_t start) {
  return buffer.tape().view_of(buffer, shape, contiguous_strides(shape), start);
}

Tensor piece(const Tensor& buffer, std::uint64_t start, std::uint64_t count) {
  return shaped(buffer, shape(count), start);
}

Tensor flattened(const Tensor& tensor) {
  return piece(tensor, 0, tensor.shape().numel());
}

Tensor buffer(Tape& tape, OpKind op, std::uint64_t count, DType dtype) {
  return tape.empty(op, shape(count), dtype);
}

}  // namespace ledger::flat
