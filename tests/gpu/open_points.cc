#include "tests/gpu/open_points.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <random>

#include "core/base/number_format.h"
#include "probe/cuda/cudnn_attention.h"
#include "probe/cuda/nvml.h"
#include "probe/cuda/runtime/cuda_store.h"

namespace ledger {
namespace {

constexpr double kAny = std::numeric_limits<double>::infinity();
constexpr double kBf16Tolerance = 2e-5;  // normalised square error of one 16-bit result

double bytes_in_use() {
  return static_cast<double>(cuda::device_bytes_in_use());
}

// Device memory with bf16 numbers between -1 and 1 in it.
class Numbers {
 public:
  explicit Numbers(std::uint64_t count, double size = 1) : count_(count) {
    if (cudaMalloc(&memory_, count * 2) != cudaSuccess) memory_ = nullptr;
    static std::mt19937 engine(1);
    std::uniform_real_distribution<double> uniform(-size, size);
    constexpr std::uint64_t kDrawn = 1 << 20;  // then the same again
    std::vector<std::uint16_t> drawn(std::min(count, kDrawn));
    for (std::uint16_t& bits : drawn)
      bits = bf16_from_float(static_cast<float>(uniform(engine)));
    for (std::uint64_t i = 0; memory_ != nullptr && i < count; i += kDrawn)
      cudaMemcpy(data() + 2 * i, drawn.data(), 2 * std::min(kDrawn, count - i), cudaMemcpyHostToDevice);
  }
  ~Numbers() { cudaFree(memory_); }
  Numbers(const Numbers&) = delete;
  Numbers& operator=(const Numbers&) = delete;

  bool there() const { return memory_ != nullptr; }
  std::byte* data() const { return static_cast<std::byte*>(memory_); }
  std::vector<float> read() const {
    std::vector<std::uint16_t> bits(count_);
    cudaMemcpy(bits.data(), memory_, 2 * count_, cudaMemcpyDeviceToHost);
    std::vector<float> values(count_);
    std::transform(bits.begin(), bits.end(), values.begin(), float_from_bf16);
    return values;
  }

 private:
  void* memory_ = nullptr;
  std::uint64_t count_;
};

double normalised_difference(const Numbers& a, const Numbers& b) {
  const std::vector<float> x = a.read(), y = b.read();
  double error = 0, size = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double difference = static_cast<double>(x[i]) - static_cast<double>(y[i]);
    error += difference * difference;
    size += static_cast<double>(y[i]) * static_cast<double>(y[i]);
  }
  return size == 0 || !std::isfinite(error) ? kAny : error / size;
}

device::Operand operand(DType dtype, const std::byte* data, std::vector<std::uint64_t> sizes,
                        std::vector<std::int64_t> strides) {
  device::Operand result;
  result.data = const_cast<std::byte*>(data);
  result.dtype = dtype;
  result.rank = static_cast<std::uint8_t>(sizes.size());
  std::copy(sizes.begin(), sizes.end(), result.sizes.begin());
  std::copy(strides.begin(), strides.end(), result.strides.begin());
  return result;
}

device::Operand matrix(const Numbers& numbers, std::uint64_t rows, std::uint64_t columns) {
  return operand(DType::bf16, numbers.data(), {1, rows, columns}, {0, static_cast<std::int64_t>(columns), 1});
}

// [1,n,s,d] as a projection leaves it, [s,n,d] in memory.
device::Operand heads(const Numbers& numbers, std::uint64_t n, std::uint64_t s, std::uint64_t d) {
  const auto row = static_cast<std::int64_t>(n * d);
  return operand(DType::bf16, numbers.data(), {1, n, s, d},
                 {static_cast<std::int64_t>(s) * row, static_cast<std::int64_t>(d), row, 1});
}

// What went wrong in one call of an operator's kernel, or "".
std::string run_op(MeasuredDevice& gpu, OpKind op, std::span<const device::Operand> in,
                   std::span<const device::Operand> out) {
  const Trace trace;
  Run run;
  run.op = op;
  device::Call call{in, out, run.attr, trace, 1, run, 0, gpu.services()};
  gpu.kernels()[static_cast<std::size_t>(op)](call);
  return call.error != nullptr ? call.error : gpu.queue_error();
}

// Milliseconds of one of `times` calls, queued one after the other; the first ones load what they need.
template <class F>
double milliseconds(MeasuredDevice& gpu, int times, F f) {
  const auto stream = static_cast<cudaStream_t>(gpu.services().queue.stream);
  cudaEvent_t began, ended;
  cudaEventCreate(&began);
  cudaEventCreate(&ended);
  for (int i = 0; i < 2; ++i)
    f();
  cudaEventRecord(began, stream);
  for (int i = 0; i < times; ++i)
    f();
  cudaEventRecord(ended, stream);
  cudaEventSynchronize(ended);
  float all = 0;
  cudaEventElapsedTime(&all, began, ended);
  cudaEventDestroy(began);
  cudaEventDestroy(ended);
  return static_cast<double>(all) / times;
}

template <class F>
double seconds_of(F f) {
  const auto began = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

}  // namespace

void OpenPoints::tell(const std::string& name, double seen, const char* unit, double least, double most) {
  const bool holds = seen >= least && seen <= most;
  good_ = good_ && holds;
  out_.begin_object().member("name", name).member("ok", holds).member("seen", seen).member("unit", unit);
  if (std::isfinite(least)) out_.member("least", least);
  if (std::isfinite(most)) out_.member("most", most);
  out_.end_object();
  std::fprintf(stderr, "%s %s: %.6g %s\n", holds ? "ok  " : "FAIL", name.c_str(), seen, unit);
}

void OpenPoints::fail(const std::string& name, const std::string& why) {
  good_ = false;
  out_.begin_object().member("name", name).member("ok", false).member("why", why).end_object();
  std::fprintf(stderr, "FAIL %s: %s\n", name.c_str(), why.c_str());
}

// The allocator's segments: PyTorch's sizes are whole multiples of 2 MiB.
void OpenPoints::segments() {
  for (const Bytes bytes : {2 * kMiB, 20 * kMiB, 22 * kMiB, kGiB + 2 * kMiB}) {
    const double before = bytes_in_use();
    void* memory = nullptr;
    const std::string name = "a segment of " + std::to_string(bytes / kMiB) + " MiB takes its size of the device";
    if (cudaMalloc(&memory, bytes) != cudaSuccess) {
      cudaGetLastError();
      fail(name, "cudaMalloc refused it");
      continue;
    }
    tell(name, bytes_in_use() - before, "bytes", static_cast<double>(bytes), static_cast<double>(bytes));
    cudaFree(memory);
    tell(name + ", and gives all of it back", bytes_in_use() - before, "bytes", 0, 0);
  }
}

// Looked at after each growth: that must cost little.
void OpenPoints::memory_calls() {
  constexpr int kCalls = 100;
  constexpr double kMostMicroseconds = 5000;
  const double by_runtime = seconds_of([&] {
    for (int i = 0; i < kCalls; ++i)
      cuda::device_bytes_in_use();
  });
  tell("cudaMemGetInfo, one call", by_runtime / kCalls * 1e6, "us", 0, kMostMicroseconds);
  cudaDeviceProp properties{};
  cudaGetDeviceProperties(&properties, 0);
  std::array<std::uint8_t, 16> uuid{};
  std::memcpy(uuid.data(), properties.uuid.bytes, uuid.size());
  cuda::Nvml nvml;
  if (!nvml.choose(uuid)) return fail("NVML finds the GPU by its UUID", nvml.problem());
  const double by_nvml = seconds_of([&] {
    for (int i = 0; i < kCalls; ++i)
      nvml.memory();
  });
  tell("NVML's memory, one call", by_nvml / kCalls * 1e6, "us", 0, kMostMicroseconds);
  if (const auto memory = nvml.memory())
    tell("NVML and cudaMemGetInfo tell the same", static_cast<double>(memory->used) - bytes_in_use(), "bytes",
         -static_cast<double>(64 * kMiB), static_cast<double>(64 * kMiB));
}

// cudaMallocAsync's counters, which PyTorch's backend of that name reports as its own.
void OpenPoints::pool() {
  constexpr Bytes kMost = 256 * kMiB, kTaken = 96 * kMiB;
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.maxSize = kMost;
  cudaMemPool_t memory_pool = nullptr;
  if (cudaMemPoolCreate(&memory_pool, &properties) != cudaSuccess) {
    cudaGetLastError();
    return fail("a memory pool with a limit", "cudaMemPoolCreate refused it");
  }
  const auto stream = static_cast<cudaStream_t>(gpu_.services().queue.stream);
  const auto attribute = [&](cudaMemPoolAttr which) {
    std::uint64_t value = 0;
    cudaMemPoolGetAttribute(memory_pool, which, &value);
    return static_cast<double>(value);
  };
  std::uint64_t keep = UINT64_MAX, zero = 0;
  cudaMemPoolSetAttribute(memory_pool, cudaMemPoolAttrReleaseThreshold, &keep);
  void *first = nullptr, *beyond = nullptr;
  cudaMallocFromPoolAsync(&first, kTaken, memory_pool, stream);
  const bool refused = cudaMallocFromPoolAsync(&beyond, kMost, memory_pool, stream) == cudaErrorMemoryAllocation;
  cudaGetLastError();
  tell("a pool refuses what is beyond its limit", refused ? 1 : 0, "refusals", 1, 1);
  tell("a pool's high mark of use is what was taken", attribute(cudaMemPoolAttrUsedMemHigh), "bytes", kTaken, kTaken);
  tell("a pool's high mark of reservation", attribute(cudaMemPoolAttrReservedMemHigh), "bytes", kTaken, kMost);
  cudaFreeAsync(first, stream);
  cudaStreamSynchronize(stream);
  tell("a pool keeps what its threshold allows", attribute(cudaMemPoolAttrReservedMemCurrent), "bytes", kTaken, kMost);
  cudaMemPoolSetAttribute(memory_pool, cudaMemPoolAttrUsedMemHigh, &zero);
  tell("a pool's high mark falls back to what is in use", attribute(cudaMemPoolAttrUsedMemHigh), "bytes", 0, 0);
  cudaMemPoolDestroy(memory_pool);
}

// cuBLASLt with scratch memory of ours: what it takes beside that, and its speed on numbers as weights are.
void OpenPoints::products() {
  constexpr std::uint64_t kSide = 8192;
  const Numbers a(kSide * kSide), b(kSide * kSide), c(kSide * kSide), workspace(16 * kMiB);
  if (!workspace.there()) return fail("cuBLASLt multiplies", "there is no memory for three matrices");
  gpu_.use_workspace(workspace.data(), 32 * kMiB);
  const device::Operand left = matrix(a, kSide, kSide), right = matrix(b, kSide, kSide),
                        result = matrix(c, kSide, kSide);
  const char* error = nullptr;
  bool taken = true;
  const auto multiply = [&](const device::Operand& x, const device::Operand& y, const device::Operand& z) {
    taken = gpu_.services().library->multiply({x, y, z}, error) && taken;
  };
  const double before = bytes_in_use();
  multiply(left, right, result);
  const std::string problem = gpu_.settle();
  if (!taken || !problem.empty()) return fail("cuBLASLt multiplies", error != nullptr ? error : problem);
  const double loaded = bytes_in_use();
  tell("cuBLASLt's first product loads its kernel", loaded - before, "bytes", 0, static_cast<double>(128 * kMiB));
  const double ms = milliseconds(gpu_, 10, [&] { multiply(left, right, result); });
  tell("cuBLASLt allocates nothing of its own once it is loaded", bytes_in_use() - loaded, "bytes", 0, 0);
  product_tflops_ = 2.0 * kSide * kSide * kSide / ms / 1e9;
  tell("cuBLASLt, 8192 x 8192 x 8192 in bf16", product_tflops_, "TFLOP/s", 50, kAny);
  gpu_.use_workspace(nullptr, 0);
}

void OpenPoints::attention() {
  constexpr std::uint64_t kHeads = 32, kKvHeads = 8, kTokens = 4096, kWidth = 128;
  constexpr double kForward = 4.0 * kHeads * kTokens * kTokens * kWidth / 2;  // FLOPs of what causality leaves
  constexpr std::uint64_t kQuery = kHeads * kTokens * kWidth, kKey = kKvHeads * kTokens * kWidth;
  const Numbers q(kQuery, 2), k(kKey, 2), v(kKey), gradient(kQuery), lse(2 * kHeads * kTokens);
  const Numbers out(kQuery), dq(kQuery), dk(kKey), dv(kKey), own_out(kQuery), own_dq(kQuery), own_dk(kKey),
      own_dv(kKey);
  if (!own_dv.there()) return fail("attention", "there is no memory for its operands");
  const auto rows = operand(DType::f32, lse.data(), {1, kHeads, kTokens}, {kHeads * kTokens, kTokens, 1});
  const auto query = [&](const Numbers& x) { return heads(x, kHeads, kTokens, kWidth); };
  const auto key = [&](const Numbers& x) { return heads(x, kKvHeads, kTokens, kWidth); };
  const device::Operand nothing{};
  const auto timed = [&](const char* name, OpKind op, const std::vector<device::Operand>& in,
                         const std::vector<device::Operand>& results, double flops, double least) {
    std::string problem = run_op(gpu_, op, in, results);
    if (problem.empty()) problem = gpu_.settle();
    if (!problem.empty()) {
      fail(name, problem);
      return 0.0;
    }
    const double ms = milliseconds(gpu_, 5, [&] { run_op(gpu_, op, in, results); });
    const double tflops = flops / ms / 1e9;
    tell(name, tflops, "TFLOP/s", least, kAny);
    return tflops;
  };
  const std::vector<device::Operand> in = {query(q), key(k), key(v)};
  const std::vector<device::Operand> back = {query(gradient), query(q), key(k), key(v), query(own_out), rows};
  const double own_forward = timed("own attention forward, 32/8 heads of 128, 4096 tokens", OpKind::own_attention, in,
                                   {query(own_out), rows, nothing, nothing}, kForward, 20);
  const double own_backward = timed("own attention backward", OpKind::own_attention_backward, back,
                                    {query(own_dq), key(own_dk), key(own_dv)}, 2.5 * kForward, 20);

  cuda::Cudnn library;
  if (!library.problem().empty()) return fail("cuDNN is there", library.problem());
  if (const std::string problem = library.open(gpu_.services().queue.stream); !problem.empty())
    return fail("cuDNN starts", problem);
  const double scale = 1 / std::sqrt(static_cast<double>(kWidth));
  double tflops[2] = {};
  const std::vector<device::Operand> results[2] = {{query(out), rows}, {query(dq), key(dk), key(dv)}};
  for (const bool backward : {false, true}) {
    const std::string which = backward ? "cuDNN backward" : "cuDNN forward";
    const OpKind op = backward ? OpKind::cudnn_attention_backward : OpKind::cudnn_attention;
    const auto question = cuda::attention_question(op, backward ? back : in, results[backward], {}, library.version());
    if (question.refusal != nullptr) return fail(which + " is asked", question.refusal);
    cuda::CudnnAttention graph(library, question.shape);
    const bool made = graph.finish(library.handle());
    tell(which + " has engines", made ? static_cast<double>(graph.engines()) : 0, "engines", 1, kAny);
    bool planned = false;
    const double seconds = seconds_of([&] { planned = made && graph.plan(library.handle()); });
    if (!planned) return fail(which + " has a plan", graph.error());
    tell(which + ": a plan is made in", seconds * 1e3, "ms", 0, 3000);
    // dq in fp32 and its row sums; dk and dv at all query heads; a workspace with one number for each score would be
    // the quadratic one of deterministic mode.
    tell(which + ": scratch memory", static_cast<double>(graph.scratch_bytes()), "bytes", 0,
         static_cast<double>(2 * kQuery * 4 + 2 * kQuery * 2));
    const Numbers scratch(graph.scratch_bytes() / 2 + 1);
    const auto run = [&] {
      return graph.run(library.handle(), backward ? back : in, results[backward], scale, scratch.data());
    };
    if (!run()) return fail(which + " runs", graph.error());
    if (const std::string problem = gpu_.settle(); !problem.empty()) return fail(which + " runs", problem);
    tflops[backward] = (backward ? 2.5 : 1) * kForward / milliseconds(gpu_, 5, run) / 1e9;
    tell(which + ", 32/8 heads of 128, 4096 tokens", tflops[backward], "TFLOP/s", 50, kAny);
  }
  // Hidden keys are the lowest number to cuDNN and -inf to us.
  const std::pair<const char*, std::pair<const Numbers*, const Numbers*>> pairs[] = {
      {"out", {&out, &own_out}}, {"dq", {&dq, &own_dq}}, {"dk", {&dk, &own_dk}}, {"dv", {&dv, &own_dv}}};
  for (const auto& [name, both] : pairs)
    tell(std::string("cuDNN and own attention agree: ") + name, normalised_difference(*both.first, *both.second),
         "of the square", 0, 2 * kBf16Tolerance);
  constexpr double kLeastOfCudnn = 0.25;
  if (tflops[0] > 0)
    tell("own attention forward beside cuDNN's", own_forward / tflops[0], "times", kLeastOfCudnn, kAny);
  if (tflops[1] > 0)
    tell("own attention backward beside cuDNN's", own_backward / tflops[1], "times", kLeastOfCudnn, kAny);
}

// Experts of a mixture, each with its part of the rows, beside one product of as many operations.
void OpenPoints::experts() {
  constexpr std::uint64_t kExperts = 8, kRows = 8192, kInner = 4096, kColumns = 14336;
  const Numbers rows(kRows * kInner), weights(kExperts * kInner * kColumns), out(kRows * kColumns);
  void* ends = nullptr;
  if (!out.there() || cudaMalloc(&ends, 4 * kExperts) != cudaSuccess)
    return fail("experts' products", "there is no memory for their operands");
  std::vector<std::int32_t> places;
  for (std::uint64_t i = 0; i < kExperts; ++i)
    places.push_back(static_cast<std::int32_t>((i + 1) * kRows / kExperts - (i + 1 == kExperts ? 0 : 37 * i)));
  cudaMemcpy(ends, places.data(), 4 * kExperts, cudaMemcpyHostToDevice);
  const auto k = static_cast<std::int64_t>(kInner), n = static_cast<std::int64_t>(kColumns);
  const std::vector<device::Operand> in = {
      operand(DType::bf16, rows.data(), {kRows, kInner}, {k, 1}),
      operand(DType::bf16, weights.data(), {kExperts, kInner, kColumns}, {k * n, 1, k}),  // [E,N,K] in memory
      operand(DType::i32, static_cast<std::byte*>(ends), {kExperts}, {1})};
  const std::vector<device::Operand> results = {operand(DType::bf16, out.data(), {kRows, kColumns}, {n, 1})};
  std::string problem = run_op(gpu_, OpKind::grouped_mm, in, results);
  if (problem.empty()) problem = gpu_.settle();
  if (problem.empty()) {
    const double ms = milliseconds(gpu_, 5, [&] { run_op(gpu_, OpKind::grouped_mm, in, results); });
    const double tflops = 2.0 * kRows * kInner * kColumns / ms / 1e9;
    tell("experts' products, 8 experts of 4096 x 14336", tflops, "TFLOP/s", 20, kAny);
    if (product_tflops_ > 0) tell("experts' products beside cuBLASLt's", tflops / product_tflops_, "times", 0.15, kAny);
  } else {
    fail("experts' products", problem);
  }
  cudaFree(ends);
}

bool OpenPoints::check() {
  out_.key("points").begin_array();
  segments();
  memory_calls();
  pool();
  products();
  attention();
  experts();
  out_.end_array();
  return good_;
}

}  // namespace ledger
