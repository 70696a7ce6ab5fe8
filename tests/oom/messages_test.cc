// One row a format, written as the framework writes it, with numbers of our own.
#include "core/oom/messages.h"

#include <gtest/gtest.h>

namespace ledger::oom {
namespace {

constexpr Bytes mib(double value) {
  return static_cast<Bytes>(value * 1048576 + 0.5);
}
constexpr Bytes gib(double value) {
  return static_cast<Bytes>(value * 1073741824 + 0.5);
}

struct Said {
  const char* name;
  const char* text;
  const char* format;
  const char* device;
  std::optional<Bytes> requested = std::nullopt, capacity = std::nullopt, allocated = std::nullopt,
                       reserved = std::nullopt, free = std::nullopt;
};

void PrintTo(const Said& c, std::ostream* out) {
  *out << c.name;
}

const Said kSaid[] = {
    {"torch_1_0",
     "RuntimeError: CUDA out of memory. Tried to allocate 36.00 MiB (GPU 1; 11.50 GiB total capacity; 9.25 GiB already "
     "allocated; 30.50 MiB free; 512.00 MiB cached)",
     "torch_1.0", "cuda", mib(36), gib(11.5), gib(9.25), gib(9.75), mib(30.5)},
    {"torch_1_4",
     "RuntimeError: CUDA out of memory. Tried to allocate 1.50 GiB (GPU 0; 15.75 GiB total capacity; 12.00 GiB already "
     "allocated; 1.25 GiB free; 13.50 GiB reserved in total by PyTorch)",
     "torch_1.4", "cuda", gib(1.5), gib(15.75), gib(12), gib(13.5), gib(1.25)},
    {"torch_1_10",
     "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 3; 39.50 GiB total capacity; 36.00 GiB already "
     "allocated; 0 bytes free; 37.00 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try "
     "setting max_split_size_mb to avoid fragmentation.",
     "torch_1.10", "cuda", gib(2), gib(39.5), gib(36), gib(37), 0},
    {"torch_1_13",
     "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 64.00 MiB (GPU 0; 23.50 GiB total capacity; "
     "22.00 GiB already allocated; 40.00 MiB free; 22.50 GiB reserved in total by PyTorch) If reserved memory is >> "
     "allocated memory try setting max_split_size_mb",
     "torch_1.13", "cuda", mib(64), gib(23.5), gib(22), gib(22.5), mib(40)},
    {"torch_2_1",
     "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 96.00 MiB. GPU 2 has a total capacty of 79.25 "
     "GiB of which 50.00 MiB is free. Including non-PyTorch memory, this process has 79.00 GiB memory in use. Of the "
     "allocated memory 77.00 GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but unallocated.",
     "torch_2.1", "cuda", mib(96), gib(79.25), gib(77), gib(78), mib(50)},
    {"torch_2_5_processes",
     "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 200.00 MiB. GPU 0 has a total capacity of 24.00 "
     "GiB of which 20.00 MiB is free. Process 4001 has 6.00 GiB memory in use. Process 4002 has 17.75 GiB memory in "
     "use. Of the allocated memory 17.00 GiB is allocated by PyTorch, with 40.00 MiB allocated in private pools (e.g., "
     "CUDA Graphs), and 250.00 MiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large "
     "try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
     "torch_2.5", "cuda", mib(200), gib(24), gib(17), gib(17) + mib(250), mib(20)},
    {"torch_2_9_fraction",
     "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 30.00 MiB. GPU 0 has a total capacity of 24.00 GiB "
     "of which 2.00 GiB is free. Including non-PyTorch memory, this process has 12.00 GiB memory in use. 12.00 GiB "
     "allowed; Of the allocated memory 11.50 GiB is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but "
     "unallocated. If reserved but unallocated memory is large try setting PYTORCH_ALLOC_CONF=expandable_segments:True",
     "torch_2.9", "cuda", mib(30), gib(24), gib(11.5), gib(11.5) + mib(100), gib(2)},
    {"hip",
     "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 14.00 GiB. GPU 0 has a total capacity of 63.98 GiB "
     "of which 9.00 GiB is free. Of the allocated memory 50.00 GiB is allocated by PyTorch, and 3.00 GiB is reserved "
     "by PyTorch but unallocated.",
     "torch_2.5", "hip", gib(14), gib(63.98), gib(50), gib(53), gib(9)},
    {"xpu_without_free",
     "torch.OutOfMemoryError: XPU out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 15.50 GiB. "
     "Of the allocated memory 13.00 GiB is allocated by PyTorch, and 1.50 GiB is reserved by PyTorch but unallocated.",
     "torch_2.5", "xpu", gib(2.5), gib(15.5), gib(13), gib(14.5)},
    {"npu",
     "RuntimeError: NPU out of memory. Tried to allocate 100.00 MiB (NPU 1; 60.00 GiB total capacity; 57.00 GiB "
     "already allocated; 57.00 GiB current active; 30.00 MiB free; 58.00 GiB reserved in total by PyTorch) If reserved "
     "memory is >> allocated memory try setting max_split_size_mb",
     "torch_1.10", "npu", mib(100), gib(60), gib(57), gib(58), mib(30)},
    {"hpu", "RuntimeError: [Rank:1] FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::134217728 (128)MB",
     "habana", "hpu", mib(128)},
    {"mps",
     "RuntimeError: MPS backend out of memory (MPS allocated: 5.50 GiB, other allocations: 2.00 GiB, max allowed: 9.00 "
     "GiB). Tried to allocate 1.75 GiB on private pool.",
     "torch_mps", "mps", gib(1.75), gib(9), gib(5.5)},
    {"mlx", "std::runtime_error: [malloc_or_wait] Unable to allocate 4096 bytes.", "mlx", "mlx", 4096},
    {"jax",
     "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1073741824 "
     "bytes.",
     "xla_allocate", "", gib(1)},
    {"torch_xla",
     "RuntimeError: RESOURCE_EXHAUSTED: Attempting to reserve 6.25G at the bottom of memory. That was not possible. "
     "There are 5.50G free, 0B reserved, and 5.50G reservable.",
     "xla_reserve", "tpu", gib(6.25), std::nullopt, std::nullopt, std::nullopt, gib(5.5)},
    {"tpu_compile",
     "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. Used 20.50G of "
     "15.50G hbm. Exceeded hbm capacity by 5.00G.",
     "xla_compile", "tpu", gib(5), gib(15.5), gib(20.5)},
    {"tensorflow",
     "ResourceExhaustedError: OOM when allocating tensor with shape[4,12,512,512] and type half on "
     "/job:localhost/device:GPU:0",
     "tensorflow", "", 4ull * 12 * 512 * 512 * 2},
    {"paddle",
     "Out of memory error on GPU 0. Cannot allocate 256.000000MB memory on GPU 0, 30.500000GB memory has been "
     "allocated and available memory is only 128.000000MB.",
     "paddle", "cuda", mib(256), std::nullopt, gib(30.5), std::nullopt, mib(128)},
    {"cuda_malloc_async",
     "Allocation on device 0 would exceed allowed memory. (out of memory)\nCurrently allocated     : 10.25 "
     "GiB\nRequested               : 50.00 MiB\nDevice limit            : 12.00 GiB\nFree (according to CUDA): 25.00 "
     "MiB\nPyTorch limit (set by user-supplied memory fraction)\n                        : 17179869184.00 GiB",
     "torch_cuda_malloc_async", "cuda", mib(50), gib(12), gib(10.25), std::nullopt, mib(25)},
    {"expandable_mapping",
     "expandable_segments: memory mapping failed with OOM on device 0 while trying to map 20971520 bytes (free: "
     "10485760, total: 25769803776).",
     "torch_expandable_mapping", "cuda", mib(20), gib(24), std::nullopt, std::nullopt, mib(10)},
    {"cuda_error", "torch.AcceleratorError: CUDA error: out of memory", "torch_cuda_error", "cuda"},
    {"cublas", "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", "cublas",
     "cuda"},
    {"nccl", "host:10:20 [0] NCCL WARN Cuda failure 2 'out of memory'", "nccl", "cuda"},
    {"bitsandbytes", "Error out of memory at line 100 in file /src/csrc/pythonInterface.c", "bitsandbytes", "cuda"},
    {"vllm_cache",
     "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing "
     "the engine.",
     "vllm_cache_blocks", ""},
    {"vllm_start",
     "ValueError: Free memory on device (5.25/24.00 GiB) on startup is less than desired GPU memory utilization (0.9, "
     "21.50 GiB).",
     "vllm_startup", "", gib(21.5), gib(24), std::nullopt, std::nullopt, gib(5.25)},
    {"cpu_allocator",
     "RuntimeError: [enforce fail at alloc_cpu.cpp:80] err == 0. DefaultCPUAllocator: can't allocate memory: you tried "
     "to allocate 1048576000 bytes. Error code 12 (Cannot allocate memory)",
     "torch_cpu_allocator", "host", 1048576000},
    {"exit_9", "[INFO] worker 7 exits with return code = -9", "exit_-9", "host"},
    {"elastic_9", "failed (exitcode: -9) local_rank: 2 (pid: 11)", "exit_-9", "host"},
    {"ray", "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.", "ray_node",
     "host"},
    {"dmesg", "Out of memory: Killed process 77 (python) total-vm:100kB", "linux_oom_killer", "host"},
    {"triton", "OutOfResources: out of resource: shared memory, Required: 131072, Hardware limit: 101376.",
     "triton_shared_memory", "", 131072, 101376},
};

class Formats : public testing::TestWithParam<Said> {};

TEST_P(Formats, AreRead) {
  const Said& c = GetParam();
  const std::vector<Message> messages = read_messages(Squashed(c.text));
  ASSERT_EQ(messages.size(), 1u) << c.text;
  const Message& m = messages[0];
  EXPECT_STREQ(m.format, c.format);
  EXPECT_STREQ(m.device, c.device);
  EXPECT_EQ(m[Field::requested], c.requested);
  EXPECT_EQ(m[Field::capacity], c.capacity);
  EXPECT_EQ(m[Field::allocated], c.allocated);
  EXPECT_EQ(m[Field::reserved], c.reserved);
  EXPECT_EQ(m[Field::free], c.free);
}

INSTANTIATE_TEST_SUITE_P(Oom, Formats, testing::ValuesIn(kSaid),
                         [](const auto& one) { return std::string(one.param.name); });

// The same message with the damage that pastes take: the numbers stay.
struct Damage {
  const char* name;
  const char* text;
};
void PrintTo(const Damage& d, std::ostream* out) {
  *out << d.name;
}
const Damage kDamaged[] = {
    {"wrapped",
     "CUDA out of memor\ny. Tried to allocate 9\n6.00 MiB. GPU 2 has a total capac\nity of 79.25 GiB of which 50.00 "
     "MiB is fr\nee. Includ\ning non-PyTorch memory, this process has 79.00 GiB memory in use. Of the allocated memory "
     "7\n7.00 GiB is allocated by PyTorch, and 1.00 GiB is reserv\ned by PyTorch but unallocated."},
    {"markdown",
     "C**UDA out of memory. Tried to allocate 9**6.00 MiB. GPU 2 has a total capacity of **79.25 GiB** of which 50.00 "
     "MiB is free. Including non-PyTorch memory, this process has 79.00 GiB memory in use. Of the allocated memory "
     "`77.00 GiB` is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but unallocated."},
    {"quoted",
     "> [rank3]: CUDA out of memory. Tried to allocate\n> [rank3]: 96.00 MiB. GPU 2 has a total capacity of 79.25 GiB "
     "of which\n> [rank3]: 50.00 MiB is free. Including non-PyTorch memory, this process has 79.00 GiB memory in "
     "use.\n> [rank3]: Of the allocated memory 77.00 GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch "
     "but unallocated."},
    {"boxed",
     "\xe2\x94\x82 CUDA out of memory. Tried to allocate 96.00 MiB. GPU 2 has a total \xe2\x94\x82\n\xe2\x94\x82 "
     "capacity of 79.25 GiB of which 50.00 MiB is free. Including non-PyTorch memory, this process has 79.00 GiB "
     "\xe2\x94\x82\n\xe2\x94\x82 memory in use. Of the allocated memory 77.00 GiB is allocated by PyTorch, and 1.00 "
     "GiB is reserved by PyTorch but unallocated. \xe2\x94\x82"},
    {"coloured",
     "\x1b[31mCUDA out of memory.\x1b[0m Tried to allocate \x1b[1m96.00 MiB\x1b[0m. GPU 2 has a total capacity of "
     "79.25 GiB of which 50.00 MiB is free. Including non-PyTorch memory, this process has 79.00 GiB memory in use. Of "
     "the allocated memory 77.00 GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but unallocated."},
    {"interleaved",
     "torch.cudatorch.cuda..OutOfMemoryErrorOutOfMemoryError: : CUDA out of memory. CUDA out of memory. Tried to "
     "allocate Tried to allocate 96.00 MiB96.00 MiB. GPU 2. GPU 3 has a total capacity of has a total capacity of "
     "79.25 GiB79.25 GiB of which  of which 50.00 MiB50.00 MiB is free is free. Including non-PyTorch memory, this "
     "process has 79.00 GiB memory in use. Of the allocated memory 77.00 GiB is allocated by PyTorch, and 1.00 GiB is "
     "reserved by PyTorch but unallocated."},
    {"glued",
     "x = f(y)CUDA out of memory. Tried to allocate 96.00 MiB. GPU  has a total capacity of 79.25 GiB of which 50.00 "
     "MiB is free. Including non-PyTorch memory, this process has 79.00 GiB memory in use. Of the allocated memory "
     "77.00 GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but "
     "unallocated.PYTORCH_CUDA_ALLOC_CONFret = input.softmax(dim)"},
};

class Damaged : public testing::TestWithParam<Damage> {};

TEST_P(Damaged, PastesKeepTheirNumbers) {
  const std::vector<Message> messages = read_messages(Squashed(GetParam().text));
  ASSERT_EQ(messages.size(), 1u);
  const Message& m = messages[0];
  EXPECT_EQ(m[Field::requested], mib(96));
  EXPECT_EQ(m[Field::capacity], gib(79.25));
  EXPECT_EQ(m[Field::free], mib(50));
  EXPECT_EQ(m[Field::allocated], gib(77));
  EXPECT_EQ(m[Field::unallocated], gib(1));
}

INSTANTIATE_TEST_SUITE_P(Oom, Damaged, testing::ValuesIn(kDamaged),
                         [](const auto& one) { return std::string(one.param.name); });

TEST(OomMessages, SeveralInOneTextKeepTheirNumbersApart) {
  const char* text =
      "CUDA out of memory. Tried to allocate 10.00 MiB (GPU 0; 8.00 GiB total capacity; 7.00 GiB already allocated; "
      "5.00 MiB free; "
      "7.50 GiB reserved in total by PyTorch)\n"
      "CUDA out of memory. Tried to allocate 12.00 MiB (GPU 1; 16.00 GiB total capacity; 15.00 GiB already allocated; "
      "6.00 MiB free; "
      "15.50 GiB reserved in total by PyTorch)\n";
  const auto messages = read_messages(Squashed(text));
  ASSERT_EQ(messages.size(), 2u);
  EXPECT_EQ(messages[0][Field::capacity], gib(8));
  EXPECT_EQ(messages[1][Field::capacity], gib(16));
  EXPECT_EQ(messages[1].gpu, 1u);
}

TEST(OomMessages, SizesOfTwoToTheSixtyFourAreUnknown) {
  const char* text =
      "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 8.00 GiB of which 0 bytes is "
      "free. Process 9 has "
      "17179869184.00 GiB memory in use. Of the allocated memory 7.00 GiB is allocated by PyTorch";
  const auto messages = read_messages(Squashed(text));
  ASSERT_EQ(messages.size(), 1u);
  ASSERT_EQ(messages[0].processes.size(), 1u);
  EXPECT_FALSE(messages[0].processes[0].bytes.has_value());
}

TEST(OomMessages, TheOwnProcessIsFoundAmongThoseListed) {
  const char* text =
      "CUDA out of memory. Tried to allocate 32.00 MiB. GPU 0 has a total capacity of 24.00 GiB of which 10.00 MiB is "
      "free. Process 501 has "
      "9.00 GiB memory in use. Process 502 has 14.90 GiB memory in use. Of the allocated memory 14.00 GiB is allocated "
      "by PyTorch, and "
      "300.00 MiB is reserved by PyTorch but unallocated.";
  const auto messages = read_messages(Squashed(text));
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_EQ(messages[0][Field::this_process], gib(14.9));
  ASSERT_EQ(messages[0].processes.size(), 1u);
  EXPECT_EQ(messages[0].processes[0].pid, 501u);
}

TEST(OomMessages, ALongListOfProcessesIsStillOneMessage) {
  std::string text =
      "CUDA out of memory. Tried to allocate 32.00 MiB. GPU 0 has a total capacity of 24.00 GiB of which 10.00 MiB is "
      "free. ";
  for (int i = 0; i < 60; ++i)
    text += "Process " + std::to_string(100 + i) + " has 100.00 MiB memory in use. ";
  text +=
      "Of the allocated memory 14.00 GiB is allocated by PyTorch, and 300.00 MiB is reserved by PyTorch but "
      "unallocated.";
  const auto messages = read_messages(Squashed(text));
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_EQ(messages[0].processes.size(), 60u);
  EXPECT_EQ(messages[0][Field::allocated], gib(14));
}

TEST(OomMessages, ProseWithoutNumbersIsNoMessage) {
  EXPECT_TRUE(read_messages(Squashed("I tried to allocate more time for this. It cannot allocate itself.")).empty());
}

}  // namespace
}  // namespace ledger::oom
