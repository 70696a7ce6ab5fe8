// nccl.h - NCCL, loaded at run time: what ranks on GPUs say to each other with.
#pragma once

#include <optional>
#include <string>

#include "core/base/bytes.h"
#include "probe/cuda/nccl_api.h"
#include "probe/cuda/shared_library.h"

namespace ledger::cuda {

class Nccl {
 public:
  Nccl();
  Nccl(const Nccl&) = delete;
  Nccl& operator=(const Nccl&) = delete;

  // Why it cannot be used: what is missing and where it was looked for, or that it is too old. Empty when it can.
  const std::string& problem() const { return problem_; }
  std::uint64_t version() const { return version_; }  // 22809 is 2.28.9; 0 where it was not found
  std::string version_text() const;                   // "2.28.9", "none" where it was not found

  struct Functions {
    using Result = nccl::Result;
    using Comm = nccl::Comm;
    using Stream = nccl::Stream;
    using UniqueId = nccl::UniqueId;
    using Config = nccl::Config;
    using DataType = nccl::DataType;
    using RedOp = nccl::RedOp;
#define LEDGER_DECLARE(result, name, parameters) \
  result(*name) parameters = nullptr;  // NOLINT(bugprone-macro-parentheses): a declarator
    LEDGER_NCCL(LEDGER_DECLARE)
#undef LEDGER_DECLARE
  };
  const Functions& call() const {
    return call_;
  }

  std::string explain(nccl::Result result) const;  // "unhandled system error"
  std::string last_words(nccl::Comm comm) const;   // what the library says of its last error; may name machines
  // Whether the GPU had no memory for it: `words` are its last.
  static bool lacks_memory(nccl::Result result, const std::string& words);
  // What it says that a communicator takes of the GPU; not before 2.30.
  std::optional<Bytes> memory_of(nccl::Comm comm) const;

 private:
  SharedLibrary library_;
  Functions call_;
  nccl::Result (*memory_)(nccl::Comm, nccl::MemStat, std::uint64_t*) = nullptr;
  std::uint64_t version_ = 0;
  std::string problem_;
};

}  // namespace ledger::cuda
