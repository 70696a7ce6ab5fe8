#include "core/trace/tape.h"

#include <algorithm>
#include <limits>

#include "core/trace/operators.h"
#include "core/trace/strides.h"

namespace ledger {

// --- storages, names, events
// ------------------------------------------------------------------------------------------

Tape::Tape(TapeOptions options) : options_(options) {
  trace_.has_operands = options.operands;
  trace_.names.emplace_back();
  names_.push_back({0, "", 0, 0});
  trace_.events.reserve(1u << 15);
  trace_.storages.reserve(1u << 14);
}

Tape::~Tape() {
  finished_ = muted_ = true;
  clear_autocast_cache();
}

NameId Tape::intern(NameId parent, const char* name) {
  for (NameId id = names_[parent].first_child; id != 0; id = names_[id].next_sibling) {
    if (names_[id].literal == name) return id;
  }
  const auto id = static_cast<NameId>(names_.size());
  names_.push_back({parent, name, 0, names_[parent].first_child});
  names_[parent].first_child = id;
  const std::string& prefix = trace_.names[parent];
  trace_.names.push_back(prefix.empty() ? std::string(name) : prefix + "." + name);
  return id;
}

void Tape::begin_phase(std::string_view name) {
  trace_.events.push_back({EventType::mark, category_, static_cast<std::uint32_t>(trace_.phases.size())});
  trace_.phases.emplace_back(name);
}

Trace Tape::finish() {
  finished_ = muted_ = true;
  forward_workspace_.reset();
  backward_workspace_.reset();
  leaf_hooks_.clear();
  hooks_.clear();  // of a backward pass that never came
  at_backward_end_.clear();
  return std::move(trace_);
}

StorageId Tape::add_storage(OpKind op, const Shape& shape, DType dtype) {
  const Bytes bytes = times(shape.numel(), element_bytes(dtype));
  if (muted_ || bytes == 0) return kNoStorage;
  if (is_overflow(bytes)) trace_.overflow = true;
  const auto id = static_cast<StorageId>(trace_.storages.size());
  // Field by field where it stays: built aside and copied in wider pieces than it was written in, it stalls the
  // processor (a sixth of the tracing).
  StorageInfo& storage = trace_.storages.emplace_back();
  storage.bytes = bytes;
  storage.shape = shape;
  storage.dtype = dtype;
  storage.category = category_;
  storage.op = op;
  storage.scope = scope_;
  storage.layer = layer_;
  storage.on_host = on_host_;
  trace_.events.push_back({on_host_ ? EventType::alloc_on_host : EventType::alloc, category_, id});
  ++alive_;
  if (!on_host_) {
    live_bytes_ = plus(live_bytes_, bytes);
    most_live_bytes_ = std::max(most_live_bytes_, live_bytes_);
    if (live_bytes_ > options_.limit) trace_.over_limit = true;
  }
  return id;
}

StorageRef* Tape::new_storage(OpKind op, const Shape& shape, DType dtype) {
  StorageRef* storage = storages_.take();
  storage->refs = 1;
  storage->remake = nullptr;
  storage->id = add_storage(op, shape, dtype);
  return storage;
}

void Tape::end_of(StorageId id) {
  const StorageInfo& storage = trace_.storages[id];
  trace_.events.push_back({storage.on_host ? EventType::free_on_host : EventType::free, Category::activations, id});
  if (!storage.on_host) live_bytes_ -= storage.bytes;
  --alive_;
  oldest_changed_ = std::min(oldest_changed_, id);
}

void Tape::release_storage(StorageRef* storage) {
  if (--storage->refs != 0) return;
  if (storage->id != kNoStorage && !finished_) end_of(storage->id);
  CheckpointFrame* const remake = std::exchange(storage->remake, nullptr);
  storages_.give(storage);
  if (remake != nullptr) release_frame(remake);
}

void Tape::relabel(const Tensor& tensor, Category category) {
  const StorageId id = tensor.impl()->storage->id;
  if (id == kNoStorage) return;
  trace_.events.push_back({EventType::label, category, id});
  oldest_changed_ = std::min(oldest_changed_, id);
}

// --- tensors
// -----------------------------------------------------------------------------------------------------------

TensorImpl* Tape::new_impl(DType dtype, const Shape& shape) {
  TensorImpl* impl = impls_.take();
  impl->refs = 1;
  impl->dtype = dtype;
  impl->contiguous = true;
  impl->requires_grad = false;
  impl->output_nr = 0;
  impl->tape = this;
  impl->storage = nullptr;
  impl->grad_fn = nullptr;
  impl->accumulator = nullptr;
  impl->parameter = -1;
  impl->accumulated = -1;
  impl->offset = 0;
  impl->shape = shape;
  return impl;
}

void Tensor::release(TensorImpl* impl) {
  impl->tape->release_impl(impl);
}

void Tape::release_impl(TensorImpl* impl) {
  impl->grad.reset();
  impl->autocast_copy.reset();
  release_storage(impl->storage);
  Node* const grad_fn = impl->grad_fn;
  impls_.give(impl);
  if (grad_fn != nullptr) release_node(grad_fn);
}

Tensor Tape::empty(OpKind op, const Shape& shape, DType dtype, const Strides* strides) {
  Tensor result;
  if (recomputing_ != nullptr && take_kept(op, result)) return result;
  TensorImpl* impl = new_impl(dtype, shape);
  impl->storage = new_storage(op, shape, dtype);
  if (strides != nullptr) {
    impl->strides = *strides;
    impl->contiguous = strides_contiguous(shape, *strides);
  } else {
    set_contiguous_strides(shape, impl->strides);
  }
  result = Tensor::adopt(impl);
  if (recording_ != nullptr && recomputing_ == nullptr) take_kept(op, result);
  return result;
}

Tensor Tape::parameter(std::string_view name, const Shape& shape, DType dtype, Parameter::Role role, bool trainable) {
  const In in(*this, Category::weights);
  Tensor tensor = empty(OpKind::load_parameter, shape, dtype);
  const auto index = static_cast<std::int32_t>(trace_.parameters.size());
  trace_.parameters.push_back({std::string(name), tensor.impl()->storage->id, kNoStorage, role, trainable});
  tensor.impl()->parameter = index;
  tensor.impl()->requires_grad = trainable;
  run(OpKind::load_parameter, {}, {&tensor}, {0, {index, 0}});
  return tensor;
}

Tensor Tape::view_of(const Tensor& base, const Shape& shape, const Strides& strides, std::uint64_t offset) {
  TensorImpl* impl = new_impl(base.dtype(), shape);
  impl->storage = base.impl()->storage;
  ++impl->storage->refs;
  impl->strides = strides;
  impl->offset = base.impl()->offset + offset;
  impl->contiguous = strides_contiguous(shape, strides);
  return Tensor::adopt(impl);
}

Tensor Tape::detach(const Tensor& tensor) {
  const TensorImpl& from = *tensor.impl();
  TensorImpl* impl = new_impl(from.dtype, from.shape);
  impl->storage = from.storage;
  ++impl->storage->refs;
  impl->strides = from.strides;
  impl->offset = from.offset;
  impl->contiguous = from.contiguous;
  return Tensor::adopt(impl);
}

Tensor Tape::unbacked(const Shape& shape, DType dtype) {
  TensorImpl* impl = new_impl(dtype, shape);
  impl->storage = storages_.take();
  impl->storage->refs = 1;
  impl->storage->remake = nullptr;
  impl->storage->id = kNoStorage;
  impl->strides = contiguous_strides(shape);
  return Tensor::adopt(impl);
}

void Tape::alloc_storage(const Tensor& tensor, const Shape& flat, OpKind op) {
  tensor.impl()->storage->id = add_storage(op, flat, tensor.dtype());
}

void Tape::free_storage(const Tensor& tensor) {
  const StorageId id = std::exchange(tensor.impl()->storage->id, kNoStorage);
  if (id != kNoStorage) end_of(id);
}

void Tape::empty_cache() {
  if (!muted_) trace_.events.push_back({EventType::empty_cache, category_, 0});
}

void Tape::set_data(const Tensor& tensor, const Tensor& source) {
  TensorImpl& impl = *tensor.impl();
  const TensorImpl& from = *source.impl();
  ++from.storage->refs;
  release_storage(std::exchange(impl.storage, from.storage));
  impl.dtype = from.dtype;
  impl.strides = from.strides;
  impl.contiguous = from.contiguous;
  impl.offset = from.offset;
}

Tensor Tape::scratch(const Shape& shape, DType dtype) {
  const In in(*this, Category::workspace);
  Tensor tensor = empty(OpKind::workspace, shape, dtype);
  run(OpKind::workspace, {}, {&tensor});
  return tensor;
}

Tensor Tape::cudnn_scratch() {
  const Bytes bytes = in_backward_ ? options_.cudnn_backward_bytes : options_.cudnn_forward_bytes;
  return bytes == 0 ? Tensor() : scratch({{bytes, Sym::none}}, DType::u8);
}

// PyTorch keeps one cuBLAS workspace per handle and stream; the autograd thread has a handle of its own.
// Source: aten/src/ATen/cuda/CublasHandlePool.cpp.
void Tape::ensure_cublas_workspace() {
  Tensor& workspace = in_backward_ ? backward_workspace_ : forward_workspace_;
  if (workspace || options_.cublas_workspace_bytes == 0 || muted_) return;
  const Once once(*this);
  const Scope scope(*this, kCublasScope, Scope::Below::nothing);
  const Layer layer(*this, -1);
  workspace = scratch({{options_.cublas_workspace_bytes, Sym::none}}, DType::u8);
}

// --- recording runs
// ------------------------------------------------------------------------------------------------------

void Tape::add_view(const Tensor& tensor) {
  const TensorImpl& impl = *tensor.impl();
  View view;
  view.storage = impl.storage->id;
  view.dtype = impl.dtype;
  view.rank = impl.shape.rank;
  for (std::size_t i = 0; i < impl.shape.rank; ++i) {
    view.sizes[i] = impl.shape.sizes[i];
    view.strides[i] = impl.strides[i];
  }
  view.offset = impl.offset;
  trace_.views.push_back(view);
}

void Tape::run(OpKind op, std::span<const Tensor* const> inputs, std::span<const Tensor* const> outputs, Attr attr) {
  if (muted_) return;
  if (was_kept_ && op != OpKind::workspace) {
    was_kept_ = false;
    return;
  }
  trace_.events.push_back({EventType::run, category_, run_count_++});
  if (!options_.operands) return;
  Run run;
  run.op = op;
  if (inputs.size() > 255) {
    run.many = static_cast<std::uint32_t>(inputs.size());
  } else {
    run.inputs = static_cast<std::uint8_t>(inputs.size());
  }
  run.outputs = static_cast<std::uint8_t>(outputs.size());
  run.first_view = static_cast<std::uint32_t>(trace_.views.size());
  run.attr = attr;
  run.scope = scope_;
  run.layer = layer_;
  run.group = group_;
  for (const Tensor* tensor : inputs)
    add_view(*tensor);
  for (const Tensor* tensor : outputs)
    add_view(*tensor);
  trace_.runs.push_back(run);
}

// --- autocast
// --------------------------------------------------------------------------------------------------------------
// Source: aten/src/ATen/autocast_mode.cpp, cached_cast: only fp32 leaves that require grad are cached, until the
// outermost autocast region ends; a frozen weight is cast again at every use.

Tensor Tape::autocast_low(const Tensor& tensor) {
  const DType dtype = tensor.dtype();
  if (!autocast_ || dtype == autocast_dtype_ || !info(dtype).floating || dtype == DType::f64) return tensor;
  TensorImpl* impl = tensor.impl();
  const bool cacheable = dtype == DType::f32 && impl->requires_grad && impl->grad_fn == nullptr && impl->parameter >= 0;
  if (!cacheable) return to(tensor, autocast_dtype_);
  if (!impl->autocast_copy) {
    impl->autocast_copy = to(tensor, autocast_dtype_);
    autocast_cached_.push_back(impl);
  }
  return impl->autocast_copy;
}

Tensor Tape::autocast_fp32(const Tensor& tensor) {
  const DType dtype = tensor.dtype();
  if (!autocast_ || dtype == DType::f32 || !info(dtype).floating || dtype == DType::f64) return tensor;
  return to(tensor, DType::f32);
}

void Tape::clear_autocast_cache() {
  for (TensorImpl* impl : autocast_cached_)
    impl->autocast_copy.reset();
  autocast_cached_.clear();
}

}  // namespace ledger
