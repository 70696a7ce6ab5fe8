// nccl_api.h - the part of NCCL's C API that is used, declared by us: the library is loaded at run time, and nccl.h
// need not be there. Source: NCCL API reference; numbers and layout are held against nccl.h where a build has it
// (runtime/nccl_layout.cc).
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>

namespace ledger::cuda::nccl {

using Comm = void*;    // ncclComm_t
using Stream = void*;  // cudaStream_t

enum Result : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
};

enum DataType : int {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kInt64 = 4,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9,
};

enum RedOp : int { kSum = 0, kMax = 2, kAvg = 4 };

enum MemStat : int { kGpuMemTotal = 3 };  // of 2.30 and later

struct UniqueId {
  char internal[128];
};

// ncclConfig_t as 2.18 has it. Later versions added members at its end and read as many bytes as `size` says.
struct Config {
  std::size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 21800;
  int blocking = 0;
  int cga_cluster_size = INT_MIN;  // INT_MIN: the library's choice
  int min_ctas = INT_MIN;
  int max_ctas = INT_MIN;
  const char* net_name = nullptr;
  int split_share = INT_MIN;
};

// clang-format off
// X(result, name, parameters)
#define LEDGER_NCCL(X)                                                                                     \
  X(Result, ncclGetVersion, (int*))                                                                        \
  X(Result, ncclGetUniqueId, (UniqueId*))                                                                  \
  X(Result, ncclCommInitRankConfig, (Comm*, int, UniqueId, int, Config*))                                  \
  X(Result, ncclCommFinalize, (Comm))                                                                      \
  X(Result, ncclCommDestroy, (Comm))                                                                       \
  X(Result, ncclCommAbort, (Comm))                                                                         \
  X(Result, ncclCommGetAsyncError, (Comm, Result*))                                                        \
  X(const char*, ncclGetErrorString, (Result))                                                             \
  X(const char*, ncclGetLastError, (Comm))                                                                 \
  X(Result, ncclAllReduce, (const void*, void*, std::size_t, DataType, RedOp, Comm, Stream))               \
  X(Result, ncclAllGather, (const void*, void*, std::size_t, DataType, Comm, Stream))                      \
  X(Result, ncclReduceScatter, (const void*, void*, std::size_t, DataType, RedOp, Comm, Stream))           \
  X(Result, ncclBroadcast, (const void*, void*, std::size_t, DataType, int, Comm, Stream))                 \
  X(Result, ncclSend, (const void*, std::size_t, DataType, int, Comm, Stream))                             \
  X(Result, ncclRecv, (void*, std::size_t, DataType, int, Comm, Stream))                                   \
  X(Result, ncclGroupStart, ())                                                                            \
  X(Result, ncclGroupEnd, ())
// clang-format on

}  // namespace ledger::cuda::nccl
