#include "probe/cuda/runtime/driver_entry_points.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstddef>

namespace ledger::cuda {
namespace {

using namespace driver;

static_assert(sizeof(AllocationProperties) == sizeof(CUmemAllocationProp) && sizeof(Access) == sizeof(CUmemAccessDesc));
static_assert(offsetof(AllocationProperties, location) == offsetof(CUmemAllocationProp, location));
static_assert(offsetof(AllocationProperties, windows) == offsetof(CUmemAllocationProp, win32HandleMetaData));
static_assert(offsetof(AllocationProperties, compression) == offsetof(CUmemAllocationProp, allocFlags));
static_assert(offsetof(Access, flags) == offsetof(CUmemAccessDesc, flags));
static_assert(sizeof(Address) == sizeof(CUdeviceptr) && sizeof(Handle) == sizeof(CUmemGenericAllocationHandle));
static_assert(CU_MEM_ALLOCATION_TYPE_PINNED == 1 && CU_MEM_LOCATION_TYPE_DEVICE == 1);
static_assert(CU_MEM_ACCESS_FLAGS_PROT_READWRITE == 3 && CU_MEM_ALLOC_GRANULARITY_MINIMUM == kMinimumGranularity);
static_assert(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED == kHasVirtualMemory);
static_assert(CUDA_ERROR_OUT_OF_MEMORY == kOutOfMemory);

[[maybe_unused]] constexpr unsigned kVersion = 12000;  // of the functions' signatures; they have not changed since 10.2

void* entry_point(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result{};
#if CUDART_VERSION >= 12050
  const cudaError_t status = cudaGetDriverEntryPointByVersion(name, &function, kVersion, cudaEnableDefault, &result);
#else
  const cudaError_t status = cudaGetDriverEntryPoint(name, &function, cudaEnableDefault, &result);
#endif
  if (status != cudaSuccess) cudaGetLastError();
  return status == cudaSuccess && result == cudaDriverEntryPointSuccess ? function : nullptr;
}

MemoryTable find_all() {
  MemoryTable table;
#define LEDGER_FIND(name, parameters)                                      \
  table.name = reinterpret_cast<decltype(table.name)>(entry_point(#name)); \
  if (table.name == nullptr && table.missing.empty()) table.missing = #name;
  LEDGER_DRIVER_MEMORY(LEDGER_FIND)
#undef LEDGER_FIND
  return table;
}

}  // namespace

const driver::MemoryTable& driver_memory() {
  static const MemoryTable kTable = find_all();
  return kTable;
}

}  // namespace ledger::cuda
