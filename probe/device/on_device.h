// on_device.h - how a kernel's body is launched, once for both kinds of device.
//
// A body is a small struct with an operator(). nvcc compiles the files of this folder for the GPU (namespace
// ledger::cuda), where for_elements() and for_teams() launch threads. g++ compiles the very same files for an emulated
// device (namespace ledger::emulated), where they are loops: everything but this header's few lines of launch code and
// warp arithmetic is thereby run, and compared with the host's kernels, where there is no GPU.
//
// Two shapes of work: for_elements() calls body(i) for independent i; for_teams() calls body(team, i) with a team of
// lanes that share memory and combine values. A lane's variables that live from one each() to the next are PerLane.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "probe/device/call.h"
#include "probe/math/host_device.h"

#if defined(__CUDACC__)
#define LEDGER_DEVICE cuda
#else
#define LEDGER_DEVICE emulated
#include <vector>
#endif

namespace ledger::LEDGER_DEVICE {

using device::Call;
using device::Operand;

inline constexpr unsigned kLanes = 256;
inline constexpr unsigned kWarp = 32;

struct Sum {
  template <class T>
  LEDGER_DEVICE_ONLY T operator()(T a, T b) const {
    return a + b;
  }
};
struct Largest {
  template <class T>
  LEDGER_DEVICE_ONLY T operator()(T a, T b) const {
    return a < b ? b : a;
  }
};
struct Smallest {
  template <class T>
  LEDGER_DEVICE_ONLY T operator()(T a, T b) const {
    return b < a ? b : a;
  }
};

#if defined(__CUDACC__)

template <class T>
struct PerLane {
  T value;
  LEDGER_DEVICE_ONLY T& operator[](unsigned) { return value; }
};

class Team {
 public:
  std::byte* shared;

  template <class F>
  LEDGER_DEVICE_ONLY void each(F f) {
    f(threadIdx.x);
    __syncthreads();
  }

  // The same value in every lane, combined in the order that the emulation uses, too.
  template <class T, class F>
  LEDGER_DEVICE_ONLY T combine(PerLane<T>& values, F f) {
    __shared__ T of_warp[kLanes / kWarp];
    T mine = values.value;
    for (unsigned distance = kWarp / 2; distance > 0; distance /= 2)
      mine = f(mine, __shfl_xor_sync(~0u, mine, distance));
    if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = mine;
    __syncthreads();
    mine = of_warp[0];
    for (unsigned warp = 1; warp < kLanes / kWarp; ++warp)
      mine = f(mine, of_warp[warp]);
    __syncthreads();
    return mine;
  }
#else

template <class T>
struct PerLane {
  std::array<T, kLanes> values;
  T& operator[](unsigned lane) { return values[lane]; }
};

class Team {
 public:
  std::byte* shared;

  template <class F>
  void each(F f) {
    for (unsigned lane = 0; lane < kLanes; ++lane)
      f(lane);
  }

  template <class T, class F>
  T combine(PerLane<T>& values, F f) {
    std::array<T, kLanes / kWarp> of_warp;
    for (unsigned warp = 0; warp < kLanes / kWarp; ++warp) {
      std::array<T, kWarp> lanes;
      for (unsigned i = 0; i < kWarp; ++i)
        lanes[i] = values[warp * kWarp + i];
      for (unsigned distance = kWarp / 2; distance > 0; distance /= 2) {
        const std::array<T, kWarp> before = lanes;
        for (unsigned i = 0; i < kWarp; ++i)
          lanes[i] = f(before[i], before[i ^ distance]);
      }
      of_warp[warp] = lanes[0];
    }
    T result = of_warp[0];
    for (unsigned warp = 1; warp < kLanes / kWarp; ++warp)
      result = f(result, of_warp[warp]);
    return result;
  }
#endif

  // f(0) ... f(count - 1) combined; `start` for none.
  template <class T, class Combine, class F>
  LEDGER_DEVICE_ONLY T over(std::uint64_t count, T start, Combine with, F f) {
    PerLane<T> part;
    each([&](unsigned lane) {
      T mine = start;
      for (std::uint64_t i = lane; i < count; i += kLanes)
        mine = with(mine, f(i));
      part[lane] = mine;
    });
    return combine(part, with);
  }
  template <class T, class F>
  LEDGER_DEVICE_ONLY T sum(std::uint64_t count, F f) {
    return over<T>(count, T{0}, Sum{}, f);
  }
  template <class F>
  LEDGER_DEVICE_ONLY void for_each(std::uint64_t count, F f) {
    each([&](unsigned lane) {
      for (std::uint64_t i = lane; i < count; i += kLanes)
        f(i);
    });
  }
};

#if defined(__CUDACC__)

// Enough blocks to fill the GPU several times over; each then takes every gridDim-th piece of work.
constexpr std::uint64_t kBlocksPerMultiprocessor = 32;

inline unsigned blocks_for(const device::Queue& queue, std::uint64_t wanted) {
  const std::uint64_t most = kBlocksPerMultiprocessor * queue.multiprocessors;
  return static_cast<unsigned>(wanted < most ? wanted : most);
}

template <class Body>
__global__ void __launch_bounds__(kLanes) run_elements(const __grid_constant__ Body body, std::uint64_t count) {
  const std::uint64_t step = static_cast<std::uint64_t>(gridDim.x) * kLanes;
  for (std::uint64_t i = static_cast<std::uint64_t>(blockIdx.x) * kLanes + threadIdx.x; i < count; i += step)
    body(i);
}

template <class Body>
__global__ void __launch_bounds__(kLanes) run_teams(const __grid_constant__ Body body, std::uint64_t count) {
  extern __shared__ double shared[];
  for (std::uint64_t i = blockIdx.x; i < count; i += gridDim.x) {
    Team team{reinterpret_cast<std::byte*>(shared)};
    body(team, i);
    __syncthreads();
  }
}

template <class Body>
void for_elements(Call& call, std::uint64_t count, const Body& body) {
  if (count == 0) return;
  const device::Queue& queue = call.services.queue;
  const std::uint64_t blocks = (count + kLanes - 1) / kLanes;
  run_elements<<<blocks_for(queue, blocks), kLanes, 0, static_cast<cudaStream_t>(queue.stream)>>>(body, count);
}

// `shared` bytes of memory a team; more than 48 KiB must be asked for.
template <class Body>
void for_teams(Call& call, std::uint64_t count, const Body& body, unsigned shared = 0) {
  if (count == 0) return;
  const device::Queue& queue = call.services.queue;
  if (shared > 48 * 1024 && cudaFuncSetAttribute(run_teams<Body>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                 static_cast<int>(shared)) != cudaSuccess) {
    call.error = "this GPU has not the shared memory that the kernel needs";
    return;
  }
  run_teams<<<blocks_for(queue, count), kLanes, shared, static_cast<cudaStream_t>(queue.stream)>>>(body, count);
}

#else

template <class Body>
void for_elements(Call& call, std::uint64_t count, const Body& body) {
  for (std::uint64_t i = 0; i < count; ++i)
    body(i);
  call.services.queue.launches += count > 0;
}

// Shared memory is no team's inheritance: each begins with NaN in it.
template <class Body>
void for_teams(Call& call, std::uint64_t count, const Body& body, unsigned shared = 0) {
  std::vector<double> memory(shared / sizeof(double) + 1);
  for (std::uint64_t i = 0; i < count; ++i) {
    std::fill(memory.begin(), memory.end(), std::numeric_limits<double>::quiet_NaN());
    Team team{reinterpret_cast<std::byte*>(memory.data())};
    body(team, i);
  }
  call.services.queue.launches += count > 0;
}

#endif

}  // namespace ledger::LEDGER_DEVICE
