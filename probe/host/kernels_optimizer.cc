// kernels_optimizer.cc - AdamW and SGD as PyTorch computes them.
//
// The fused kernel (aten/src/ATen/native/cuda/fused_adam_utils.cuh) keeps moments in the parameter's dtype, but updates
// with what they were before they are rounded. The foreach and for-loop implementations (torch/optim/{adam,sgd}.py) are
// several library calls, and each of them rounds its result to the tensor's dtype; so do their kernels here.
#include <algorithm>
#include <array>
#include <cmath>

#include "probe/host/kernels.h"
#include "probe/host/strided_loop.h"

namespace ledger::host {
namespace {

// f(strips, count) with the operands' elements in the compute type; those from `first_output` on are stored afterwards.
template <class C, std::size_t N, class F>
void update_as(const std::array<HostView, N>& operands, std::size_t first_output, F& f) {
  std::array<std::array<C, kStrip>, N> strip;
  const StridedLoop<N> loop(operands[N - 1], operands);
  const auto& steps = loop.steps[0];
  loop.for_each_row([&](const auto& at, std::size_t row) {
    in_strips(row, [&](std::size_t first, std::size_t count) {
      const auto place = [&](std::size_t n) { return at[n] + static_cast<std::ptrdiff_t>(first) * steps[n]; };
      for (std::size_t n = 0; n < N; ++n) {
        load_strip(strip[n].data(), place(n), steps[n], count, operands[n].dtype);
      }
      f(strip, count);
      for (std::size_t n = first_output; n < N; ++n) {
        store_strip(place(n), steps[n], strip[n].data(), count, operands[n].dtype);
      }
    });
  });
}

// The inputs, then the outputs, in one walk.
template <std::size_t Inputs, std::size_t Outputs, class F>
void update(KernelCall& call, F f) {
  std::array<HostView, Inputs + Outputs> operands;
  std::copy_n(call.in.begin(), Inputs, operands.begin());
  std::copy_n(call.out.begin(), Outputs, operands.begin() + Inputs);
  for (const HostView& operand : operands) {
    if (!broadcasts_to(operand, operands.back())) {
      call.error = "a gradient or state has another shape than its parameter";
      return;
    }
  }
  if (needs_double(call)) {
    update_as<double>(operands, Inputs, f);
  } else {
    update_as<float>(operands, Inputs, f);
  }
}

// values[i] = f(i), each rounded to `dtype`, as a library call leaves it in memory.
template <class C, class F>
void library_call(std::array<C, kStrip>& values, std::size_t count, DType dtype, F f) {
  for (std::size_t i = 0; i < count; ++i)
    values[i] = f(i);
  if (element_bytes(dtype) == sizeof(C)) return;
  std::array<double, kStrip> memory;  // as wide as any dtype
  auto* bytes = reinterpret_cast<std::byte*>(memory.data());
  const auto step = static_cast<std::ptrdiff_t>(element_bytes(dtype));
  store_strip(bytes, step, values.data(), count, dtype);
  load_strip(values.data(), bytes, step, count, dtype);
}

constexpr double kMomentum = 0.9;

}  // namespace

void adamw(KernelCall& call) {
  auto step = static_cast<double>(call.attr.i[0]);
  if (call.out.size() > 3) {
    const HostView& counter = call.out[3];
    step = load_one<double>(counter.data, counter.dtype) + 1;
    store_one(counter.data, step, counter.dtype);
  }
  const AdamW& rates = call.trace.adamw;
  const double step_size = rates.lr / (1 - std::pow(rates.beta1, step));
  const double correction2_sqrt = std::sqrt(1 - std::pow(rates.beta2, step));
  update<1, 3>(call, [&]<class C>(std::array<std::array<C, kStrip>, 4>& strip, std::size_t count) {
    const auto beta1 = static_cast<C>(rates.beta1), beta2 = static_cast<C>(rates.beta2);
    const auto decay = static_cast<C>(rates.lr * rates.weight_decay), eps = static_cast<C>(rates.eps);
    auto &g = strip[0], &p = strip[1], &m = strip[2], &v = strip[3];
    for (std::size_t i = 0; i < count; ++i) {
      p[i] -= decay * p[i];
      m[i] = beta1 * m[i] + (1 - beta1) * g[i];
      v[i] = beta2 * v[i] + (1 - beta2) * g[i] * g[i];
      p[i] -= static_cast<C>(step_size) * m[i] / (std::sqrt(v[i]) / static_cast<C>(correction2_sqrt) + eps);
    }
  });
}

void adamw_moments(KernelCall& call) {
  const AdamW& rates = call.trace.adamw;
  const DType m_dtype = call.out[0].dtype, v_dtype = call.out[1].dtype;
  update<1, 2>(call, [&]<class C>(std::array<std::array<C, kStrip>, 3>& strip, std::size_t count) {
    const auto beta2 = static_cast<C>(rates.beta2);
    const auto weight1 = static_cast<C>(1 - rates.beta1), weight2 = static_cast<C>(1 - rates.beta2);
    auto &g = strip[0], &m = strip[1], &v = strip[2];
    library_call(m, count, m_dtype, [&](std::size_t i) { return m[i] + weight1 * (g[i] - m[i]); });
    library_call(v, count, v_dtype, [&](std::size_t i) { return v[i] * beta2; });
    library_call(v, count, v_dtype, [&](std::size_t i) { return v[i] + weight2 * (g[i] * g[i]); });
  });
}

void adamw_update(KernelCall& call) {
  const AdamW& rates = call.trace.adamw;
  const auto step = static_cast<double>(call.attr.i[0]);
  const bool divided = call.attr.i[1] != 0;
  const double correction2_sqrt = std::sqrt(1 - std::pow(rates.beta2, step));
  const DType root_dtype = call.in[1].dtype, p_dtype = call.out[0].dtype;
  update<2, 1>(call, [&]<class C>(std::array<std::array<C, kStrip>, 3>& strip, std::size_t count) {
    const auto keep = static_cast<C>(1 - rates.lr * rates.weight_decay);
    const auto step_size = static_cast<C>(-rates.lr / (1 - std::pow(rates.beta1, step)));
    auto &m = strip[0], &root = strip[1], &p = strip[2];
    library_call(p, count, p_dtype, [&](std::size_t i) { return p[i] * keep; });
    if (!divided) {
      const auto correction = static_cast<C>(correction2_sqrt);
      library_call(root, count, root_dtype, [&](std::size_t i) { return root[i] / correction; });
    }
    library_call(root, count, root_dtype, [&](std::size_t i) { return root[i] + static_cast<C>(rates.eps); });
    library_call(p, count, p_dtype, [&](std::size_t i) { return p[i] + step_size * (m[i] / root[i]); });
  });
}

void momentum_update(KernelCall& call) {
  const DType dtype = call.out[0].dtype;
  update<1, 1>(call, [&]<class C>(std::array<std::array<C, kStrip>, 2>& strip, std::size_t count) {
    auto &g = strip[0], &buffer = strip[1];
    library_call(buffer, count, dtype, [&](std::size_t i) { return buffer[i] * static_cast<C>(kMomentum); });
    library_call(buffer, count, dtype, [&](std::size_t i) { return buffer[i] + g[i]; });
  });
}

void sgd_update(KernelCall& call) {
  const double lr = call.trace.adamw.lr;
  update<1, 1>(call, [&]<class C>(std::array<std::array<C, kStrip>, 2>& strip, std::size_t count) {
    auto &direction = strip[0], &p = strip[1];
    for (std::size_t i = 0; i < count; ++i)
      p[i] -= static_cast<C>(lr) * direction[i];
  });
}

}  // namespace ledger::host
