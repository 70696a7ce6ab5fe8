// flat.h - what flat buffers of parallelism have in common: windows on them, and a place of their own in the ledger.
#pragma once

#include "core/trace/operators.h"

namespace ledger {

// What a framework allocates for itself belongs to no module, whichever runs, and has no graph.
class Aside {
 public:
  Aside(Tape& tape, const char* name, Category category)
      : scope_(tape, name, Tape::Scope::Below::nothing), layer_(tape, -1), in_(tape, category), no_grad_(tape) {}

 private:
  Tape::Scope scope_;
  Tape::Layer layer_;
  Tape::In in_;
  Tape::NoGrad no_grad_;
};

namespace flat {

inline constexpr Attr kCutFlat{0, {0, 1}};  // of operators that put shards together or apart

Shape shape(std::uint64_t count);
Tensor piece(const Tensor& buffer, std::uint64_t start, std::uint64_t count);  // buffer[start : start + count]
Tensor shaped(const Tensor& buffer, const Shape& shape, std::uint64_t start);
Tensor flattened(const Tensor& tensor);                                  // view(-1)
Tensor buffer(Tape& tape, OpKind op, std::uint64_t count, DType dtype);  // torch.empty

}  // namespace flat
}  // namespace ledger
