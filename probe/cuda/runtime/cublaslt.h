// cublaslt.h - matrix products by cuBLASLt, loaded at run time: plans are cached, and its scratch memory is the
// trace's.
#pragma once

#include <cublasLt.h>

#include <array>
#include <map>
#include <memory>
#include <string>

#include "probe/cuda/library_call.h"
#include "probe/cuda/shared_library.h"

namespace ledger::cuda {

class CublasLt : public device::MatrixLibrary {
 public:
  CublasLt();
  ~CublasLt() override;
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  // Why it cannot be used; empty when it can. open() needs a CUDA context.
  const std::string& problem() const { return problem_; }
  bool open(void* stream);
  std::uint64_t version() const { return version_; }

  void use_workspace(std::byte* memory, Bytes bytes);
  bool multiply(const device::Product& product, const char*& error) override;

  // Whether the library takes descriptions of this product; asks nothing of a device.
  bool describes(const device::Product& product);

  std::uint64_t declined() const { return declined_; }  // products that kernels of our own did instead

 private:
  struct Functions;
  struct Plan;
  // Everything that a plan depends on: sizes, strides, transpositions, dtypes, alignments, scratch memory.
  using Key = std::array<std::uint64_t, 22>;

  Key key_of(const LibraryCall& product) const;
  Plan* plan_for(const LibraryCall& product);
  bool describe(Plan& plan, const LibraryCall& product);

  SharedLibrary library_;
  std::unique_ptr<Functions> call_;
  cublasLtHandle_t handle_ = nullptr;
  void* stream_ = nullptr;
  std::byte* workspace_ = nullptr;
  Bytes workspace_bytes_ = 0;
  std::uint64_t version_ = 0, declined_ = 0;
  std::map<Key, std::unique_ptr<Plan>> plans_;
  std::string problem_, error_;
};

}  // namespace ledger::cuda
