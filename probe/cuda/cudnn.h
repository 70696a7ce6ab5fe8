// cudnn.h - cuDNN, loaded at run time, and a graph of its operations: described and finalised without a device, made a
// plan and run with one.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "probe/cuda/cudnn_api.h"
#include "probe/cuda/shared_library.h"

namespace ledger::cuda {

class Cudnn {
 public:
  Cudnn();
  ~Cudnn();
  Cudnn(const Cudnn&) = delete;
  Cudnn& operator=(const Cudnn&) = delete;

  // Why it cannot be used: what is missing, and where it was looked for. Empty when it can.
  const std::string& problem() const { return problem_; }
  std::size_t version() const { return version_; }  // 91900 is 9.19

  // A handle that works on `stream`; needs a device. What went wrong, or "".
  std::string open(void* stream);
  cudnn::Handle handle() const { return handle_; }
  std::string last_error() const;

  struct Functions;
  const Functions& call() const { return *call_; }

 private:
  SharedLibrary library_;
  std::unique_ptr<Functions> call_;
  cudnn::Handle handle_ = nullptr;
  std::size_t version_ = 0;
  std::string problem_;
};

struct Cudnn::Functions {
#define LEDGER_DECLARE(result, name, parameters) \
  result(*name) parameters = nullptr;  // NOLINT(bugprone-macro-parentheses): a declarator
  using Status = cudnn::Status;
  using Handle = cudnn::Handle;
  using Descriptor = cudnn::Descriptor;
  LEDGER_CUDNN(LEDGER_DECLARE)
#undef LEDGER_DECLARE
};

// A descriptor of cuDNN's; attributes are set, then it is finalised. The first refusal stays in `error`.
class CudnnDescriptor {
 public:
  CudnnDescriptor(const Cudnn& library, cudnn::Kind kind, std::string& error);
  ~CudnnDescriptor();
  CudnnDescriptor(CudnnDescriptor&& other) noexcept;
  CudnnDescriptor& operator=(CudnnDescriptor&&) = delete;

  void set(cudnn::Attribute attribute, cudnn::Type type, std::int64_t count, const void* values);
  void set(cudnn::Attribute attribute, cudnn::Type type, int value) { set(attribute, type, 1, &value); }
  void set(cudnn::Attribute attribute, const CudnnDescriptor& value) {
    set(attribute, cudnn::kTypeDescriptor, 1, &value.raw_);
  }
  void finalise(const char* what);
  cudnn::Descriptor raw() const { return raw_; }

 private:
  const Cudnn* library_;
  cudnn::Descriptor raw_ = nullptr;
  std::string* error_;
};

using Four = std::array<std::int64_t, 4>;

class CudnnGraph {
 public:
  using Id = std::int64_t;                      // of a tensor
  enum class Where { memory, nowhere, value };  // nowhere: lives between two operations; value: a scalar of the host's

  explicit CudnnGraph(const Cudnn& library) : library_(library) {}

  Id tensor(cudnn::DataType type, const Four& sizes, const Four& strides, Where where = Where::memory);
  Id between(cudnn::DataType type, const Four& sizes);  // Where::nowhere, dense
  Id scalar() { return tensor(cudnn::kFloat, {1, 1, 1, 1}, {1, 1, 1, 1}, Where::value); }

  void matmul(Id a, Id b, Id c);
  void unary(cudnn::Mode mode, Id x, Id y, cudnn::DataType precision = cudnn::kFloat);
  void binary(cudnn::Mode mode, Id x, Id b, Id y, cudnn::DataType precision = cudnn::kFloat);
  void select(Id x, Id otherwise, Id mask, Id y);  // y = mask ? x : otherwise
  void index(Id like, int axis, Id y);             // place along an axis
  void reduce(cudnn::Reduce operation, Id x, Id y);
  void reshape(Id x, Id y);

  // Finalises the graph; false with error(). `handle` may be null: then no plan can be made of it.
  bool finish(cudnn::Handle handle);
  std::int64_t engines();  // how many of cuDNN's engines know such a graph
  const std::string& error() const { return error_; }

  // The first plan that this device takes; false with error().
  bool plan(cudnn::Handle handle);
  Bytes workspace_bytes() const { return workspace_bytes_; }
  bool run(cudnn::Handle handle, const std::vector<Id>& ids, const std::vector<void*>& pointers, void* workspace);

 private:
  void pointwise(cudnn::Mode mode, cudnn::DataType precision, std::optional<int> axis, Id x, std::optional<Id> b,
                 std::optional<Id> t, Id y);
  void operation(CudnnDescriptor descriptor, const char* what);
  std::vector<CudnnDescriptor> configurations(cudnn::Heuristics mode);
  const CudnnDescriptor& at(Id id) const { return tensors_[static_cast<std::size_t>(id - 1)]; }

  const Cudnn& library_;
  std::string error_;
  std::vector<CudnnDescriptor> tensors_, parts_, operations_;
  std::optional<CudnnDescriptor> graph_, config_, plan_;
  Bytes workspace_bytes_ = 0;
};

}  // namespace ledger::cuda
