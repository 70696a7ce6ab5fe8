// tensor.h - a symbolic tensor: dtype, shape, strides and a shared storage, but no data.
//
// Handles count references as PyTorch's do, so a C++ scope ending is a Python name going away: when the last handle to
// a storage dies, the trace gets its free event. Modules are therefore written like the framework's own code, line by
// line.
#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include "core/trace/trace.h"

namespace ledger {

class Tape;
struct CheckpointFrame;
struct Node;
struct TensorImpl;

class Tensor {
 public:
  Tensor() = default;
  Tensor(const Tensor& other);
  Tensor(Tensor&& other) noexcept : impl_(std::exchange(other.impl_, nullptr)) {}
  Tensor& operator=(Tensor other) noexcept {
    std::swap(impl_, other.impl_);
    return *this;
  }
  ~Tensor() {
    if (impl_ != nullptr) reset();
  }

  explicit operator bool() const { return impl_ != nullptr; }
  void reset();

  Tape& tape() const;
  const Shape& shape() const;
  Dim dim(int i) const;  // negative counts from the end
  int rank() const;
  DType dtype() const;
  bool requires_grad() const;
  bool is_contiguous() const;
  const Tensor& grad() const;  // of a parameter; empty when it has none
  void clear_grad();

  TensorImpl* impl() const { return impl_; }
  static Tensor adopt(TensorImpl* impl);  // takes over one reference

 private:
  static void release(TensorImpl* impl);
  TensorImpl* impl_ = nullptr;
};

using Strides = std::array<std::int64_t, kMaxRank>;

// Reference-counted memory. `id` is kNoStorage when nothing was allocated (0 bytes, or recomputation already stopped).
struct StorageRef {
  std::uint32_t refs = 0;
  StorageId id = kNoStorage;
  CheckpointFrame* remake = nullptr;  // owned reference: how to make it again instead of saving it (Tape::remake)
};

struct TensorImpl {
  std::uint32_t refs = 0;
  DType dtype = DType::f32;
  bool contiguous = true;
  bool requires_grad = false;
  std::uint8_t output_nr = 0;  // which output of grad_fn this is
  Tape* tape = nullptr;
  StorageRef* storage = nullptr;
  Node* grad_fn = nullptr;        // owned reference; null for leaves
  Node* accumulator = nullptr;    // not owned: it lives as long as a graph leads to it
  std::int32_t parameter = -1;    // index into Trace::parameters
  std::int32_t accumulated = -1;  // a function of the tape's that gets the gradient after each accumulation
  std::uint64_t offset = 0;
  Shape shape;
  Strides strides{};
  Tensor grad;           // leaves
  Tensor autocast_copy;  // low-precision copy while an autocast region is open
};

// Inline: handles are copied and dropped a few times for every event of a trace.
inline Tensor::Tensor(const Tensor& other) : impl_(other.impl_) {
  if (impl_ != nullptr) ++impl_->refs;
}

inline void Tensor::reset() {
  TensorImpl* impl = std::exchange(impl_, nullptr);
  if (impl != nullptr && --impl->refs == 0) release(impl);
}

inline Tensor Tensor::adopt(TensorImpl* impl) {
  Tensor tensor;
  tensor.impl_ = impl;
  return tensor;
}

inline Tape& Tensor::tape() const {
  return *impl_->tape;
}
inline const Shape& Tensor::shape() const {
  return impl_->shape;
}
inline Dim Tensor::dim(int i) const {
  return impl_->shape[static_cast<std::size_t>(i < 0 ? i + impl_->shape.rank : i)];
}
inline int Tensor::rank() const {
  return impl_->shape.rank;
}
inline DType Tensor::dtype() const {
  return impl_->dtype;
}
inline bool Tensor::requires_grad() const {
  return impl_->requires_grad;
}
inline bool Tensor::is_contiguous() const {
  return impl_->contiguous;
}
inline const Tensor& Tensor::grad() const {
  return impl_->grad;
}
inline void Tensor::clear_grad() {
  impl_->grad.reset();
}

}  // namespace ledger
