// warps_gpu.h - warps.h in PTX: mma.sync, ldmatrix, cp.async and shuffles. Needs compute capability 8.0; compiled for
// an older one the kernels are there and trap, for dispatch never comes to them.
#pragma once

#include <type_traits>

// LEDGER_PTX_IN_PLACE: what a warp does together, or in order with memory. The compiler is not to move it under a
// branch.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#define LEDGER_PTX(...) __trap()
#define LEDGER_PTX_IN_PLACE(...) __trap()
#else
#define LEDGER_PTX(...) asm(__VA_ARGS__)
#define LEDGER_PTX_IN_PLACE(...) asm volatile(__VA_ARGS__)
#endif

namespace ledger::LEDGER_DEVICE {

// Two results as elements of type T, the first in the lower half.
template <class T>
LEDGER_DEVICE_ONLY inline std::uint32_t pack(float low, float high) {
  std::uint32_t both = 0;
  if constexpr (std::is_same_v<T, Bf16>) {
    LEDGER_PTX("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  } else {
    LEDGER_PTX("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  }
  return both;
}

class Warps {
 public:
  LEDGER_DEVICE_ONLY explicit Warps(std::byte* shared)
      : shared_(shared), base_(static_cast<unsigned>(__cvta_generic_to_shared(shared))) {}

  // f(lane) for all lanes; what they write to shared memory others see after the next barrier().
  template <class F>
  LEDGER_DEVICE_ONLY void lanes(F f) {
    f(threadIdx.x);
  }
  LEDGER_DEVICE_ONLY void barrier() { __syncthreads(); }

  // 16 bytes into shared memory, or zeros. Done for all after commit(), arrive() and a barrier.
  LEDGER_DEVICE_ONLY void copy(unsigned, unsigned to, const std::byte* from, bool there) {
    LEDGER_PTX_IN_PLACE("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(base_ + to),
                        "l"(__cvta_generic_to_global(from)), "r"(there ? 16 : 0)
                        : "memory");
  }
  LEDGER_DEVICE_ONLY void commit() { LEDGER_PTX_IN_PLACE("cp.async.commit_group;" ::: "memory"); }
  // Waits for this lane's copies but those of the last kLeft commits.
  template <unsigned kLeft>
  LEDGER_DEVICE_ONLY void arrive() {
    LEDGER_PTX_IN_PLACE("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
  }

  // Four bytes of shared memory.
  template <class V>
  LEDGER_DEVICE_ONLY V get(unsigned, unsigned from) const {
    return *reinterpret_cast<const V*>(shared_ + from);
  }
  template <class V>
  LEDGER_DEVICE_ONLY void put(unsigned, unsigned to, V value) {
    *reinterpret_cast<V*>(shared_ + to) = value;
  }

  // Four 8 x 8 matrices, each lane naming one row; kTransposed: each is transposed on its way.
  template <bool kTransposed, std::size_t N, class Place>
  LEDGER_DEVICE_ONLY void load(PerLane<std::array<Fragment, N>>& to, unsigned k, Place place) {
    std::uint32_t(&r)[4] = to[0][k].r;
    const unsigned from = base_ + place(threadIdx.x);
    if constexpr (kTransposed) {
      LEDGER_PTX_IN_PLACE("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                          : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                          : "r"(from)
                          : "memory");
    } else {
      LEDGER_PTX_IN_PLACE("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                          : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                          : "r"(from)
                          : "memory");
    }
  }

  // sums[j] += left[k] times the `half`-th block of right[0].
  template <class T, std::size_t N, std::size_t K>
  LEDGER_DEVICE_ONLY void multiply(PerLane<std::array<Sums, N>>& sums, unsigned j,
                                   PerLane<std::array<Fragment, K>>& left, unsigned k,
                                   PerLane<std::array<Fragment, 1>>& right, unsigned half) {
    float(&c)[4] = sums[0][j].v;
    const std::uint32_t(&a)[4] = left[0][k].r;
    const std::uint32_t b0 = right[0][0].r[half * 2], b1 = right[0][0].r[half * 2 + 1];
    if constexpr (std::is_same_v<T, Bf16>) {
      LEDGER_PTX_IN_PLACE(
          "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
          "{%8, %9}, {%0, %1, %2, %3};"
          : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    } else {
      LEDGER_PTX_IN_PLACE(
          "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
          "{%8, %9}, {%0, %1, %2, %3};"
          : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
  }

  // values[i] of the four lanes that have parts of the same rows, combined, in each of them.
  template <std::size_t N, class Combine>
  LEDGER_DEVICE_ONLY void across_row(PerLane<std::array<float, N>>& values, Combine combine) {
    LEDGER_UNROLL
    for (unsigned i = 0; i < N; ++i)
      LEDGER_UNROLL
    for (unsigned distance = 2; distance > 0; distance /= 2)
      values[0][i] = combine(values[0][i], __shfl_xor_sync(~0u, values[0][i], distance));
  }

  // to[0] += value, while other teams do the same.
  LEDGER_DEVICE_ONLY static void add(float* to, float value) { atomicAdd(to, value); }

 private:
  std::byte* shared_;
  unsigned base_;
};

// Two teams on a multiprocessor: up to 255 registers for each lane, and no pressure to spill for a third.
template <class Body>
__global__ void __launch_bounds__(kThreads, 2) run_warps(const __grid_constant__ Body body, std::uint64_t count) {
  extern __shared__ uint4 shared_tiles[];  // of 16 bytes, for copies and matrices are aligned so
  Warps warps(reinterpret_cast<std::byte*>(shared_tiles));
  for (std::uint64_t i = blockIdx.x; i < count; i += gridDim.x) {
    body(warps, i);
    warps.barrier();
  }
}

// body(warps, i) for i < count, with Body::kBytes of shared memory a team.
template <class Body>
void for_warps(Call& call, std::uint64_t count, const Body& body) {
  static_assert(Body::kBytes <= kMostShared);
  if (count == 0 || call.error != nullptr) return;
  device::Queue& queue = call.services.queue;
  if (Body::kBytes > 48 * 1024 && cudaFuncSetAttribute(run_warps<Body>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                       static_cast<int>(Body::kBytes)) != cudaSuccess) {
    call.error = "this GPU has not the shared memory that the kernel needs";
    return;
  }
  run_warps<<<blocks_for(queue, count), kThreads, Body::kBytes, static_cast<cudaStream_t>(queue.stream)>>>(body, count);
  ++queue.tensor_core_launches;
}

}  // namespace ledger::LEDGER_DEVICE

#undef LEDGER_PTX
#undef LEDGER_PTX_IN_PLACE
