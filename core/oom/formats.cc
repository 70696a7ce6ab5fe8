#include "core/oom/formats.h"

namespace ledger::oom {
namespace {

constexpr FieldWords kTorch[] = {
    {Field::requested, "triedtoallocate", Side::after},
    {Field::capacity, "totalcapacity;", Side::before},
    {Field::capacity, "totalcapacity", Side::before},
    {Field::capacity, "totalcapacityof", Side::after},
    {Field::capacity, "totalcapactyof", Side::after},
    {Field::allocated, "alreadyallocated", Side::before},
    {Field::allocated, "oftheallocatedmemory", Side::after},
    {Field::allocated, "isallocatedbypytorch", Side::before},
    {Field::free, "ofwhich", Side::after},
    {Field::free, "isfree", Side::before},
    {Field::free, "free;", Side::before},
    {Field::free, "free)", Side::before},
    {Field::reserved, "reservedintotal", Side::before},
    {Field::reserved, "reserved", Side::before},
    {Field::unallocated, "isreservedbypytorchbutunallocated", Side::before},
    {Field::unallocated, "isreserved", Side::before},
    {Field::unallocated, "reservedbutunallocated", Side::before},
    {Field::unallocated, "cached)", Side::before},
    {Field::unallocated, "cached", Side::before},
    {Field::this_process, "thisprocesshas", Side::after},
    {Field::private_pools, "allocatedinprivatepools", Side::before},
    {Field::allowed, "allowed;", Side::before},
};
constexpr FieldWords kMps[] = {
    {Field::requested, "triedtoallocate", Side::after},
    {Field::allocated, "mpsallocated:", Side::after},
    {Field::capacity, "maxallowed:", Side::after},
};
constexpr FieldWords kAsync[] = {
    {Field::requested, "requested:", Side::after},
    {Field::allocated, "currentlyallocated:", Side::after},
    {Field::capacity, "devicelimit:", Side::after},
    {Field::free, "free(accordingtocuda):", Side::after},
};
constexpr FieldWords kMapping[] = {
    {Field::requested, "whiletryingtomap", Side::after},
    {Field::free, "(free:", Side::bare_after},
    {Field::capacity, "total:", Side::bare_after},
};
constexpr FieldWords kHpu[] = {{Field::requested, "allocationfailedforsize::", Side::bare_after}};
constexpr FieldWords kJax[] = {
    {Field::requested, "tryingtoallocate", Side::after},
    {Field::requested, "attemptingtoreserve", Side::after},
    {Field::requested, "attemptingtoallocate", Side::after},
    {Field::free, "free,", Side::before},
};
constexpr FieldWords kXla[] = {
    {Field::allocated, "memoryspacehbm.used", Side::after},
    {Field::capacity, "hbm.exceeded", Side::before},
    {Field::requested, "hbmcapacityby", Side::after},
};
constexpr FieldWords kPaddle[] = {
    {Field::requested, "cannotallocate", Side::after},
    {Field::allocated, "memoryhasbeenallocated", Side::before},
    {Field::free, "availablememoryisonly", Side::after},
};
constexpr FieldWords kMlx[] = {{Field::requested, "unabletoallocate", Side::after},
                               {Field::requested, "attemptingtoallocate", Side::after},
                               {Field::capacity, "buffersizeof", Side::after}};
constexpr FieldWords kCpu[] = {{Field::requested, "youtriedtoallocate", Side::after}};
constexpr FieldWords kNumpy[] = {{Field::requested, "unabletoallocate", Side::after}};
constexpr FieldWords kSharedMemory[] = {
    {Field::requested, "required:", Side::bare_after},
    {Field::capacity, "hardwarelimit:", Side::bare_after},
};
constexpr FieldWords kProse[] = {{Field::requested, "tryingtoallocate", Side::after}};
constexpr FieldWords kNoNumbers[] = {{Field::count_, "", Side::after}};

template <std::size_t N>
constexpr Format format(std::string_view anchor, const char* id, const char* device, const FieldWords (&fields)[N],
                        Memory memory = Memory::device, bool needed = false) {
  return {anchor, id, device, memory, {fields, fields[0].field == Field::count_ ? 0 : N}, needed};
}

constexpr Format kFormats[] = {
    format("outofresource:sharedmemory", "triton_shared_memory", "", kSharedMemory, Memory::other),
    format("largerthan4gb", "xpu_block_limit", "xpu", kNoNumbers, Memory::other),
    format("metal::malloc]attemptingtoallocate", "mlx_buffer_limit", "mlx", kMlx, Memory::other),
    format("urresulterroroutofdevicememory", "level_zero", "xpu", kNoNumbers),
    format("urresulterroroutofresources", "level_zero", "xpu", kNoNumbers),
    format("defaultcpuallocator", "torch_cpu_allocator", "host", kCpu, Memory::host),
    format("arraymemoryerror", "numpy", "host", kNumpy, Memory::host),
    format("taskwaskilledduetothenoderunninglowonmemory", "ray_node", "host", kNoNumbers, Memory::host),
    format("ray-oom-prevention", "ray_node", "host", kNoNumbers, Memory::host),
    format("exitswithreturncode=-9", "exit_-9", "host", kNoNumbers, Memory::host),
    format("exitcode:-9", "exit_-9", "host", kNoNumbers, Memory::host),
    format("exitcode-9", "exit_-9", "host", kNoNumbers, Memory::host),
    format("outofmemory:killedprocess", "linux_oom_killer", "host", kNoNumbers, Memory::host),
    format("outofmemory:killprocess", "linux_oom_killer", "host", kNoNumbers, Memory::host),
    format("invokedoom-killer", "linux_oom_killer", "host", kNoNumbers, Memory::host),
    format("wouldexceedallowedmemory", "torch_cuda_malloc_async", "cuda", kAsync),
    format("memorymappingfailedwithoomondevice", "torch_expandable_mapping", "cuda", kMapping),
    format("allocationfailedforsize::", "habana", "hpu", kHpu),
    format("compilepermanenterror", "xla_compile", "tpu", kXla),
    format("attemptingtoreserve", "xla_reserve", "tpu", kJax),
    format("whiletryingtoallocate", "xla_allocate", "", kJax),
    format("oomwhenallocatingtensorwithshape[", "tensorflow", "", kNoNumbers),
    format("cannotallocate", "paddle", "cuda", kPaddle, Memory::device, true),
    format("[mallocorwait]", "mlx", "mlx", kMlx),
    format("commandbufferexecutionfailed:insufficientmemory", "metal", "mps", kNoNumbers),
    format("mpsbackendoutofmemory", "torch_mps", "mps", kMps),
    format("noavailablememoryforthecacheblocks", "vllm_cache_blocks", "", kNoNumbers),
    format("freememoryondevice(", "vllm_startup", "", kNoNumbers),
    format("cublasstatusallocfailed", "cublas", "cuda", kNoNumbers),
    format("cudafailure2'outofmemory'", "nccl", "cuda", kNoNumbers),
    format("cudafailure'outofmemory'", "nccl", "cuda", kNoNumbers),
    format("erroroutofmemoryatline", "bitsandbytes", "cuda", kNoNumbers),
    format("curesulterror:2(outofmemory)", "cuda_driver", "cuda", kNoNumbers),
    format("cudaerroroutofmemory", "cuda_driver", "cuda", kNoNumbers),
    format("cudaerror:outofmemory", "torch_cuda_error", "cuda", kNoNumbers),
    format("hiperror:outofmemory", "torch_cuda_error", "hip", kNoNumbers),
    format("triedtoallocate", "torch", "", kTorch, Memory::device, true),
    format("oftheallocatedmemory", "torch", "", kTorch, Memory::device, true),
    format("tryingtoallocate", "words", "", kProse, Memory::device, true),
};

constexpr Edition kEditions[] = {
    {"cached)", "torch_1.0"},          {"reservedintotal", "torch_1.4"},
    {"maxsplitsizemb", "torch_1.10"},  {"torch.cuda.outofmemoryerror", "torch_1.13"},
    {"ofwhich", "torch_2.1"},          {"expandablesegments", "torch_2.2"},
    {"privatepools", "torch_2.4"},     {"torch.outofmemoryerror", "torch_2.5"},
    {"pytorchallocconf", "torch_2.9"},
};

}  // namespace

std::span<const Format> formats() {
  return kFormats;
}

std::span<const Edition> editions() {
  return kEditions;
}

}  // namespace ledger::oom
