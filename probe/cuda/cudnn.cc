#include "probe/cuda/cudnn.h"

#include <algorithm>
#include <utility>

namespace ledger::cuda {
namespace {

using namespace cudnn;

const LibraryNames& cudnn_names() {
  static const LibraryNames kNames = {"cuDNN", {"libcudnn.so.9"}, "attention by cuDNN", "nvidia-cudnn"};
  return kNames;
}

// Before it, dQ's accumulator had to be cleared by the caller (cudnn-frontend, CompositeSDPABackwardNode).
constexpr std::size_t kOldestCudnn = 90600;

std::string version_text(std::size_t version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100);
}

Four dense(const Four& sizes) {
  return {sizes[1] * sizes[2] * sizes[3], sizes[2] * sizes[3], sizes[3], 1};
}

}  // namespace

Cudnn::Cudnn() : library_(cudnn_names()) {
  if (!library_.loaded()) {
    problem_ = library_.error();
    return;
  }
  call_ = std::make_unique<Functions>();
#define LEDGER_LOAD(result, name, parameters) \
  call_->name = reinterpret_cast<decltype(call_->name)>(library_.symbol(#name));
  LEDGER_CUDNN(LEDGER_LOAD)
#undef LEDGER_LOAD
  if (!library_.missing().empty()) {
    problem_ = library_.soname() + " has no function " + library_.missing() + ": it is of another version";
    return;
  }
  version_ = call_->cudnnGetVersion();
  if (version_ < kOldestCudnn)
    problem_ =
        library_.soname() + " is cuDNN " + version_text(version_) + "; " + version_text(kOldestCudnn) + " is needed";
}

Cudnn::~Cudnn() {
  if (handle_ != nullptr) call_->cudnnDestroy(handle_);
}

std::string Cudnn::open(void* stream) {
  if (!problem_.empty()) return problem_;
  if (call_->cudnnCreate(&handle_) != kSuccess) return "cuDNN could not be started: " + last_error();
  if (call_->cudnnSetStream(handle_, stream) != kSuccess) return "cuDNN takes no stream: " + last_error();
  return "";
}

std::string Cudnn::last_error() const {
  std::array<char, 512> text{};
  call_->cudnnGetLastErrorString(text.data(), text.size());
  return text.data();
}

CudnnDescriptor::CudnnDescriptor(const Cudnn& library, Kind kind, std::string& error)
    : library_(&library), error_(&error) {
  if (library.call().cudnnBackendCreateDescriptor(kind, &raw_) != kSuccess && error.empty())
    error = "cuDNN made no descriptor: " + library.last_error();
}

CudnnDescriptor::~CudnnDescriptor() {
  if (raw_ != nullptr) library_->call().cudnnBackendDestroyDescriptor(raw_);
}

CudnnDescriptor::CudnnDescriptor(CudnnDescriptor&& other) noexcept
    : library_(other.library_), raw_(std::exchange(other.raw_, nullptr)), error_(other.error_) {}

void CudnnDescriptor::set(Attribute attribute, Type type, std::int64_t count, const void* values) {
  if (!error_->empty()) return;
  if (library_->call().cudnnBackendSetAttribute(raw_, attribute, type, count, values) != kSuccess)
    *error_ = "cuDNN refused attribute " + std::to_string(attribute) + ": " + library_->last_error();
}

void CudnnDescriptor::finalise(const char* what) {
  if (!error_->empty()) return;
  if (library_->call().cudnnBackendFinalize(raw_) != kSuccess)
    *error_ = "cuDNN refused " + std::string(what) + ": " + library_->last_error();
}

CudnnGraph::Id CudnnGraph::tensor(DataType type, const Four& sizes, const Four& strides, Where where) {
  constexpr std::int64_t kAlignment = 16;
  const auto id = static_cast<Id>(tensors_.size()) + 1;
  CudnnDescriptor& tensor = tensors_.emplace_back(library_, kTensor, error_);
  tensor.set(kTensorType, kTypeDataType, type);
  tensor.set(kTensorDimensions, kTypeInt64, 4, sizes.data());
  tensor.set(kTensorStrides, kTypeInt64, 4, strides.data());
  tensor.set(kTensorId, kTypeInt64, 1, &id);
  tensor.set(kTensorAlignment, kTypeInt64, 1, &kAlignment);
  const bool is_virtual = where == Where::nowhere, by_value = where == Where::value;
  tensor.set(kTensorIsVirtual, kTypeBoolean, 1, &is_virtual);
  tensor.set(kTensorIsByValue, kTypeBoolean, 1, &by_value);
  tensor.finalise("a tensor");
  return id;
}

CudnnGraph::Id CudnnGraph::between(DataType type, const Four& sizes) {
  return tensor(type, sizes, dense(sizes), Where::nowhere);
}

void CudnnGraph::operation(CudnnDescriptor descriptor, const char* what) {
  descriptor.finalise(what);
  operations_.push_back(std::move(descriptor));
}

void CudnnGraph::matmul(Id a, Id b, Id c) {
  CudnnDescriptor& product = parts_.emplace_back(library_, kMatmul, error_);
  product.set(kMatmulPrecision, kTypeDataType, kFloat);
  product.finalise("a product");
  CudnnDescriptor descriptor(library_, kMatmulOperation, error_);
  descriptor.set(kMatmulOperationA, at(a));
  descriptor.set(kMatmulOperationB, at(b));
  descriptor.set(kMatmulOperationC, at(c));
  descriptor.set(kMatmulOperationMatmul, product);
  operation(std::move(descriptor), "a matrix product of these shapes");
}

void CudnnGraph::pointwise(Mode mode, DataType precision, std::optional<int> axis, Id x, std::optional<Id> b,
                           std::optional<Id> t, Id y) {
  CudnnDescriptor& part = parts_.emplace_back(library_, kPointwise, error_);
  part.set(kPointwiseMode, kTypePointwiseMode, mode);
  part.set(kPointwisePrecision, kTypeDataType, precision);
  if (axis) {
    const std::int64_t value = *axis;
    part.set(kPointwiseAxis, kTypeInt64, 1, &value);
  }
  part.finalise("an element-wise formula");
  CudnnDescriptor descriptor(library_, kPointwiseOperation, error_);
  descriptor.set(kPointwiseOperationPointwise, part);
  descriptor.set(kPointwiseOperationX, at(x));
  if (b) descriptor.set(kPointwiseOperationB, at(*b));
  if (t) descriptor.set(kPointwiseOperationT, at(*t));
  descriptor.set(kPointwiseOperationY, at(y));
  operation(std::move(descriptor), "an element-wise operation of these shapes");
}

void CudnnGraph::unary(Mode mode, Id x, Id y, DataType precision) {
  pointwise(mode, precision, std::nullopt, x, std::nullopt, std::nullopt, y);
}

void CudnnGraph::binary(Mode mode, Id x, Id b, Id y, DataType precision) {
  pointwise(mode, precision, std::nullopt, x, b, std::nullopt, y);
}

void CudnnGraph::select(Id x, Id otherwise, Id mask, Id y) {
  pointwise(kSelect, kFloat, std::nullopt, x, otherwise, mask, y);
}

void CudnnGraph::index(Id like, int axis, Id y) {
  pointwise(kIndex, kInt32, axis, like, std::nullopt, std::nullopt, y);
}

void CudnnGraph::reduce(Reduce kind, Id x, Id y) {
  CudnnDescriptor& part = parts_.emplace_back(library_, kReduction, error_);
  part.set(kReductionOperator, kTypeReductionOperator, kind);
  part.set(kReductionPrecision, kTypeDataType, kFloat);
  part.finalise("a reduction");
  CudnnDescriptor descriptor(library_, kReductionOperation, error_);
  descriptor.set(kReductionOperationX, at(x));
  descriptor.set(kReductionOperationY, at(y));
  descriptor.set(kReductionOperationReduction, part);
  operation(std::move(descriptor), "a reduction of these shapes");
}

void CudnnGraph::reshape(Id x, Id y) {
  CudnnDescriptor descriptor(library_, kReshapeOperation, error_);
  descriptor.set(kReshapeOperationX, at(x));
  descriptor.set(kReshapeOperationY, at(y));
  operation(std::move(descriptor), "a reshape");
}

bool CudnnGraph::finish(Handle handle) {
  if (!error_.empty()) return false;
  std::vector<Descriptor> raw;
  for (const CudnnDescriptor& descriptor : operations_)
    raw.push_back(descriptor.raw());
  graph_.emplace(library_, kOperationGraph, error_);
  if (handle != nullptr) graph_->set(kGraphHandle, kTypeHandle, 1, &handle);
  graph_->set(kGraphOperations, kTypeDescriptor, static_cast<std::int64_t>(raw.size()), raw.data());
  graph_->finalise("the graph");
  return error_.empty();
}

std::int64_t CudnnGraph::engines() {
  std::int64_t count = 0, got = 0;
  if (graph_) library_.call().cudnnBackendGetAttribute(graph_->raw(), kGraphEngineCount, kTypeInt64, 1, &got, &count);
  return count;
}

// What cuDNN would take for this graph, best first.
std::vector<CudnnDescriptor> CudnnGraph::configurations(Heuristics mode) {
  constexpr std::size_t kMost = 8;
  std::string refused;
  CudnnDescriptor heuristics(library_, kHeuristics, refused);
  heuristics.set(kHeuristicsGraph, *graph_);
  heuristics.set(kHeuristicsMode, kTypeHeuristicsMode, mode);
  heuristics.finalise("to say which engine to take");
  std::vector<CudnnDescriptor> found;
  std::vector<Descriptor> raw;
  for (std::size_t i = 0; i < kMost; ++i)
    raw.push_back(found.emplace_back(library_, kEngineConfig, error_).raw());
  std::int64_t got = 0;
  if (refused.empty()) {
    library_.call().cudnnBackendGetAttribute(heuristics.raw(), kHeuristicsResults, kTypeDescriptor,
                                             static_cast<std::int64_t>(kMost), &got, raw.data());
  }
  while (found.size() > static_cast<std::size_t>(std::max<std::int64_t>(got, 0)))
    found.pop_back();
  return found;
}

bool CudnnGraph::plan(Handle handle) {
  std::string refused;
  for (const Heuristics mode : {kBest, kFallback}) {
    for (CudnnDescriptor& config : configurations(mode)) {
      std::int64_t bytes = 0, got = 0;
      CudnnDescriptor plan(library_, kPlan, error_);
      plan.set(kPlanHandle, kTypeHandle, 1, &handle);
      plan.set(kPlanConfig, config);
      plan.finalise("a plan");
      const bool made = error_.empty() && library_.call().cudnnBackendGetAttribute(
                                              plan.raw(), kPlanWorkspaceSize, kTypeInt64, 1, &got, &bytes) == kSuccess;
      refused = std::exchange(error_, "");
      if (!made) continue;
      workspace_bytes_ = static_cast<Bytes>(bytes);
      config_.emplace(std::move(config));
      plan_.emplace(std::move(plan));
      return true;
    }
  }
  error_ = "none of cuDNN's engines takes this graph on this device" + (refused.empty() ? "" : ": " + refused);
  return false;
}

bool CudnnGraph::run(Handle handle, const std::vector<Id>& ids, const std::vector<void*>& pointers, void* workspace) {
  CudnnDescriptor pack(library_, kVariantPack, error_);
  const auto count = static_cast<std::int64_t>(ids.size());
  pack.set(kPackIds, kTypeInt64, count, ids.data());
  pack.set(kPackPointers, kTypePointer, count, pointers.data());
  pack.set(kPackWorkspace, kTypePointer, 1, &workspace);
  pack.finalise("the operands");
  if (error_.empty() && library_.call().cudnnBackendExecute(handle, plan_->raw(), pack.raw()) != kSuccess)
    error_ = "cuDNN's attention failed: " + library_.last_error();
  return error_.empty();
}

}  // namespace ledger::cuda
