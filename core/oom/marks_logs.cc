// marks_logs.cc - lines that launchers, trainers, engines and the kernel print.
#include "core/oom/marks.h"

namespace ledger::oom {
namespace {

using enum Stage;
using enum Depth;
using C = Cause;

constexpr Mark kLogMarks[] = {
    // the host
    {"exitswithreturncode=-9", "log_exit_9", unknown, none, {{C::host, 42}}},
    {"exitcode:-9", "log_exit_9", unknown, none, {{C::host, 40}}},
    {"exitcode-9", "log_exit_9", unknown, none, {{C::host, 40}}},
    {"signal9(sigkill)", "log_exit_9", unknown, none, {{C::host, 40}}},
    {"signal9", "log_exit_9", unknown, none, {{C::host, 30}}},
    {"oom-kill", "log_oom_killer", unknown, none, {{C::host, 44}}},
    {"oomkilled", "log_oom_killer", unknown, none, {{C::host, 44}}},
    {"outofmemory:kill", "log_oom_killer", unknown, none, {{C::host, 44}}},
    {"defaultcpuallocator", "log_cpu_allocator", unknown, none, {{C::host, 46}}},
    {"arraymemoryerror", "log_cpu_allocator", unknown, none, {{C::host, 40}}},
    {"cannotallocatememory", "log_cpu_allocator", unknown, none, {{C::host, 24}}},
    {"noderunninglowonmemory", "log_ray_node", unknown, none, {{C::host, 46}}},
    {"ray-oom-prevention", "log_ray_node", unknown, none, {{C::host, 40}}},
    {"raymemoryusagethreshold", "log_ray_node", unknown, none, {{C::host, 30}}},
    {"managedpointers", "log_managed_memory", unknown, none, {{C::host, 20}}},
    {"insufficientsharedmemory(shm)", "log_shared_memory", unknown, none, {{C::host, 36}}},
    {"buserror", "log_shared_memory", unknown, none, {{C::host, 24}}},
    {"cudahostalloc", "log_pinned", unknown, none, {{C::host, 34}}},
    {"parameteroffload:", "log_parameter_offload", load, words, {{C::host, 10}}},
    // loading and engines
    {"creatingfp16zerostage", "log_zero_optimizer", load, words, {{C::optimizer, 10}}},
    {"creatingbf16zerostage", "log_zero_optimizer", load, words, {{C::optimizer, 10}}},
    {"creatingtorch.bfloat16zerostage", "log_zero_optimizer", load, words, {{C::optimizer, 10}}},
    {"creatingtorch.float16zerostage", "log_zero_optimizer", load, words, {{C::optimizer, 10}}},
    {"beforeinitializingoptimizerstates", "log_zero_optimizer", load, words, {{C::optimizer, 14}}},
    {"trainingwithdataparallel", "log_data_parallel", unknown, none, {{C::sharding, 26}}},
    {"inreplica", "log_data_parallel", unknown, none, {{C::sharding, 8}, {C::activations, 6}}},
    {"distributedtype:multigpu", "log_multi_gpu", load, words, {{C::sharding, 26}}},
    {"distributedtype:'multigpu", "log_multi_gpu", load, words, {{C::sharding, 26}}},
    {"ncclwarn", "log_nccl", load, words, {{C::comm, 12}, {C::optimizer, 2}}},
    {"cudafailure2", "log_nccl", load, words, {{C::comm, 10}}},
    {"cublascreate", "log_library_handle", unknown, none, {}},
    {"compilepermanenterror",
     "log_xla_compile",
     load,
     enclosing,
     {{C::activations, 48}, {C::sharding, -10}, {C::host, -20}}},
    {"transpose(jvp(", "log_xla_operators", unknown, none, {{C::activations, 8}}},
    {"cudaerror:outofmemory", "log_no_numbers", unknown, none, {{C::host, 6}, {C::process, 4}}},
    {"withshape[", "log_tensor_shape", forward, words, {{C::activations, 10}}},
    {"noavailablememoryforthecacheblocks", "log_cache_blocks", generate, enclosing, {{C::kv_cache, 40}}},
    {"freememoryondevice(", "log_engine_startup", generate, enclosing, {{C::kv_cache, 22}, {C::process, 14}}},
    {"gpumemoryutilization", "log_engine_startup", generate, words, {{C::kv_cache, 18}}},
    {"memfractionstatic", "log_engine_startup", generate, words, {{C::kv_cache, 20}}},
    {"[engine.py", "log_engine", generate, inner, {{C::kv_cache, 4}, {C::fragmentation, 3}}},
    {"enginecore", "log_engine", generate, inner, {{C::kv_cache, 6}}},
    {"maxmodellen", "log_engine", generate, words, {{C::kv_cache, 6}}},
    {"outofresource:sharedmemory", "log_kernel_limit", forward, exact, {{C::unknown, 70}}},
    {"largerthan4gb", "log_block_limit", unknown, none, {{C::unknown, 60}}},
    {"maximumallowedbuffersize", "log_block_limit", unknown, none, {{C::unknown, 40}, {C::activations, 20}}},
    {"morethan1ebmemory", "log_impossible_request", unknown, none, {{C::unknown, 40}}},
    {"[mallocorwait]", "log_unified_memory", unknown, none, {{C::weights, 18}, {C::activations, 4}}},
    {"ptdevmem", "log_device_memory", unknown, none, {}},
    {"mpsbackendoutofmemory", "log_mps", unknown, none, {{C::leak, 10}, {C::activations, 4}}},
    // training
    {"requiresgrad=trueandfalse", "log_mixed_requires_grad", backward, words, {{C::gradients, 36}}},
    {"gradientmemoryusage", "log_mixed_requires_grad", backward, words, {{C::gradients, 20}}},
    {"failedtoclone()tensor", "log_failed_clone", save, enclosing, {{C::gathering, 16}}},
    {"statedict[fqn]", "log_failed_clone", save, exact, {{C::gathering, 10}}},
    {"allocatorcacheflushes", "log_cache_flushes", optimizer, words, {{C::activations, 18}, {C::fragmentation, 10}}},
    {"privatepools", "log_private_pools", unknown, none, {{C::kv_cache, 2}, {C::fragmentation, 2}}},
    {"merging4bit", "log_merge", save, exact, {{C::gathering, 10}}},
    {"forsaving", "log_save", save, words, {{C::gathering, 6}}},
    {"runningtokenizer", "log_tokenising", load, words, {{C::host, 10}}},
    {"description=\"evaluation\"", "log_evaluation", eval, exact, {}},
    {"runningevaluation", "log_evaluation", eval, inner, {}},
    {"savingmodelcheckpoint", "log_save", save, words, {}},
};

}  // namespace

std::span<const Mark> log_marks() {
  return kLogMarks;
}

}  // namespace ledger::oom
