// nccl_layout.cc - our declarations of NCCL's (nccl_api.h) against its own, where the toolkit carries them.
#if __has_include(<nccl.h>)
#include <nccl.h>

#include <type_traits>

#include "probe/cuda/nccl_api.h"

namespace ledger::cuda::nccl {
namespace {

static_assert(static_cast<int>(ncclSuccess) == kSuccess &&
              static_cast<int>(ncclUnhandledCudaError) == kUnhandledCudaError);
static_assert(static_cast<int>(ncclSystemError) == kSystemError &&
              static_cast<int>(ncclInternalError) == kInternalError);
static_assert(static_cast<int>(ncclInvalidArgument) == kInvalidArgument);
static_assert(static_cast<int>(ncclInvalidUsage) == kInvalidUsage && static_cast<int>(ncclRemoteError) == kRemoteError);
static_assert(static_cast<int>(ncclInProgress) == kInProgress);
static_assert(static_cast<int>(ncclInt8) == kInt8 && static_cast<int>(ncclUint8) == kUint8);
static_assert(static_cast<int>(ncclInt32) == kInt32 && static_cast<int>(ncclInt64) == kInt64);
static_assert(static_cast<int>(ncclFloat16) == kFloat16 && static_cast<int>(ncclBfloat16) == kBfloat16);
static_assert(static_cast<int>(ncclFloat32) == kFloat32 && static_cast<int>(ncclFloat64) == kFloat64);
static_assert(static_cast<int>(ncclSum) == kSum && static_cast<int>(ncclMax) == kMax &&
              static_cast<int>(ncclAvg) == kAvg);
static_assert(sizeof(ncclUniqueId) == sizeof(UniqueId));
static_assert(sizeof(ncclDataType_t) == sizeof(DataType) && sizeof(ncclRedOp_t) == sizeof(RedOp));
static_assert(offsetof(ncclConfig_t, size) == offsetof(Config, size));
static_assert(offsetof(ncclConfig_t, magic) == offsetof(Config, magic));
static_assert(offsetof(ncclConfig_t, version) == offsetof(Config, version));
static_assert(offsetof(ncclConfig_t, blocking) == offsetof(Config, blocking));
static_assert(offsetof(ncclConfig_t, netName) == offsetof(Config, net_name));
static_assert(offsetof(ncclConfig_t, splitShare) == offsetof(Config, split_share));
static_assert(sizeof(ncclConfig_t) >= sizeof(Config));
// The ranks of a job are one build, so that only sizes must agree, not types.
static_assert(std::is_pointer_v<ncclComm_t> && std::is_pointer_v<cudaStream_t>);

}  // namespace
}  // namespace ledger::cuda::nccl
#endif
