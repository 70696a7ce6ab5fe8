// driver_memory.h - the driver's functions for memory that is mapped at addresses of our choice, as a table: the
// runtime finds them in the driver that is there (runtime/driver_entry_points.cc), tests have others in their place.
//
// Declarations of our own. Source: CUDA driver API, virtual memory management; layouts are held against cuda.h there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace ledger::cuda::driver {

using Status = int;  // CUresult
inline constexpr Status kSuccess = 0, kOutOfMemory = 2;

using Address = unsigned long long;  // CUdeviceptr
using Handle = unsigned long long;   // CUmemGenericAllocationHandle

struct Location {
  int type = 1;  // on a device
  int id = 0;    // its number
};

struct AllocationProperties {
  int type = 1;  // pinned: the only one there is
  int handle_types = 0;
  Location location;
  void* windows = nullptr;
  unsigned char compression = 0, rdma = 0;
  unsigned short usage = 0;
  unsigned char reserved[4] = {};
};

struct Access {
  Location location;
  int flags = 3;  // read and write
};

inline constexpr int kMinimumGranularity = 0;
inline constexpr int kHasVirtualMemory = 102;  // CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED

// clang-format off
// X(name, parameters): each returns a Status
#define LEDGER_DRIVER_MEMORY(X)                                                                    \
  X(cuDeviceGetAttribute, (int*, int, int))                                                        \
  X(cuMemGetAllocationGranularity, (std::size_t*, const AllocationProperties*, int))               \
  X(cuMemAddressReserve, (Address*, std::size_t, std::size_t, Address, unsigned long long))        \
  X(cuMemAddressFree, (Address, std::size_t))                                                      \
  X(cuMemCreate, (Handle*, std::size_t, const AllocationProperties*, unsigned long long))          \
  X(cuMemRelease, (Handle))                                                                        \
  X(cuMemMap, (Address, std::size_t, std::size_t, Handle, unsigned long long))                     \
  X(cuMemUnmap, (Address, std::size_t))                                                            \
  X(cuMemSetAccess, (Address, std::size_t, const Access*, std::size_t))
// clang-format on

struct MemoryTable {
#define LEDGER_DECLARE(name, parameters) \
  Status(*name) parameters = nullptr;  // NOLINT(bugprone-macro-parentheses): a declarator
  LEDGER_DRIVER_MEMORY(LEDGER_DECLARE)
#undef LEDGER_DECLARE
  std::string missing = {};  // the first function that this driver has not; empty when all are there
};

}  // namespace ledger::cuda::driver
