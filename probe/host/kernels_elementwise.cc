// kernels_elementwise.cc - operators that treat each element alone, with broadcasting.
//
// Rows are handled in strips: load and widen, compute in float or double, round and store. In-place operators need no
// kernels of their own, for a strip is read before it is written.
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <type_traits>

#include "probe/host/kernels.h"
#include "probe/host/strided_loop.h"

namespace ledger::host {
namespace {

template <class C, std::size_t N, class F>
void map_as(const HostView& out, std::span<const HostView> in, F& f) {
  std::array<HostView, N + 1> operands;
  operands[0] = out;
  std::copy_n(in.begin(), N, operands.begin() + 1);
  std::array<std::array<C, kStrip>, N + 1> strip;
  const StridedLoop<N + 1> loop(out, operands);
  loop.for_each_row([&](const auto& at, std::size_t row) {
    in_strips(row, [&](std::size_t first, std::size_t count) {
      const auto place = [&](std::size_t n) { return at[n] + static_cast<std::ptrdiff_t>(first) * loop.steps[0][n]; };
      for (std::size_t n = 1; n <= N; ++n) {
        load_strip(strip[n].data(), place(n), loop.steps[0][n], count, operands[n].dtype);
      }
      for (std::size_t i = 0; i < count; ++i) {
        if constexpr (N == 1) strip[0][i] = f(strip[1][i]);
        if constexpr (N == 2) strip[0][i] = f(strip[1][i], strip[2][i]);
      }
      store_strip(place(0), loop.steps[0][0], strip[0].data(), count, out.dtype);
    });
  });
}

template <std::size_t N, class F>
void map(KernelCall& call, F f) {
  for (std::size_t n = 0; n < N; ++n) {
    if (!broadcasts_to(call.in[n], call.out[0])) {
      call.error = "an input does not broadcast to the output's shape";
      return;
    }
  }
  if (needs_double(call)) {
    map_as<double, N>(call.out[0], call.in, f);
  } else {
    map_as<float, N>(call.out[0], call.in, f);
  }
}

// f(x, scalar) with the scalar attribute in the compute type.
template <class F>
void map_scalar(KernelCall& call, F f) {
  const double scalar = call.attr.x;
  map<1>(call, [&](auto x) { return f(x, static_cast<decltype(x)>(scalar)); });
}

constexpr double kTanhScale = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;  // sqrt(2 / pi)
constexpr double kTanhCube = 0.044715;

}  // namespace

void copy(KernelCall& call) {
  if (call.in[0].dtype == call.out[0].dtype && broadcasts_to(call.in[0], call.out[0])) {
    move_elements(call.out[0], call.in[0]);
  } else {
    map<1>(call, [](auto x) { return x; });
  }
}

void add(KernelCall& call) {
  map<2>(call, [](auto x, auto y) { return x + y; });
}

void add_scalar(KernelCall& call) {
  map_scalar(call, [](auto x, auto scalar) { return x + scalar; });
}

void mul(KernelCall& call) {
  map<2>(call, [](auto x, auto y) { return x * y; });
}

void mul_scalar(KernelCall& call) {
  map_scalar(call, [](auto x, auto scalar) { return x * scalar; });
}

void div_scalar(KernelCall& call) {
  map_scalar(call, [](auto x, auto scalar) { return x / scalar; });
}

void sub(KernelCall& call) {
  map<2>(call, [](auto x, auto y) { return x - y; });
}

void div(KernelCall& call) {
  map<2>(call, [](auto x, auto y) { return x / y; });
}

void rsub_scalar(KernelCall& call) {
  map_scalar(call, [](auto x, auto scalar) { return scalar - x; });
}

void neg(KernelCall& call) {
  map<1>(call, [](auto x) { return -x; });
}

void pow_scalar(KernelCall& call) {
  if (call.attr.x == 2) {  // the norms' square; PyTorch multiplies, too
    map<1>(call, [](auto x) { return x * x; });
  } else {
    map_scalar(call, [](auto x, auto scalar) { return std::pow(x, scalar); });
  }
}

void sqrt(KernelCall& call) {
  map<1>(call, [](auto x) { return std::sqrt(x); });
}

void rsqrt(KernelCall& call) {
  map<1>(call, [](auto x) { return 1 / std::sqrt(x); });
}

void reciprocal(KernelCall& call) {
  map<1>(call, [](auto x) { return 1 / x; });
}

void clamp_max(KernelCall& call) {
  // NaN passes through, as in PyTorch.
  map_scalar(call, [](auto x, auto scalar) { return x > scalar ? scalar : x; });
}

void cos(KernelCall& call) {
  map<1>(call, [](auto x) { return std::cos(x); });
}

void sin(KernelCall& call) {
  map<1>(call, [](auto x) { return std::sin(x); });
}

void silu(KernelCall& call) {
  map<1>(call, [](auto x) { return x / (1 + std::exp(-x)); });
}

void silu_backward(KernelCall& call) {
  map<2>(call, [](auto gradient, auto x) {
    const auto sigmoid = 1 / (1 + std::exp(-x));
    return gradient * sigmoid * (1 + x * (1 - sigmoid));
  });
}

void relu(KernelCall& call) {
  map<1>(call, [](auto x) { return x < 0 ? decltype(x){0} : x; });  // NaN passes through
}

void threshold_backward(KernelCall& call) {
  map<2>(call, [](auto gradient, auto y) { return y > 0 ? gradient : decltype(y){0}; });
}

void tanh(KernelCall& call) {
  map<1>(call, [](auto x) { return std::tanh(x); });
}

void tanh_backward(KernelCall& call) {
  map<2>(call, [](auto gradient, auto y) { return gradient * (1 - y * y); });
}

void sigmoid(KernelCall& call) {
  map<1>(call, [](auto x) { return 1 / (1 + std::exp(-x)); });
}

void sigmoid_backward(KernelCall& call) {
  map<2>(call, [](auto gradient, auto y) { return gradient * (1 - y) * y; });
}

void masked_fill(KernelCall& call) {
  const double value = call.attr.x;
  map<2>(call, [value](auto x, auto masked) { return masked != 0 ? static_cast<decltype(x)>(value) : x; });
}

// Constants and formulas: aten/src/ATen/native/cuda/ActivationGeluKernel.cu.
void gelu(KernelCall& call) {
  if (call.attr.i[0] != 0) {
    map<1>(call, [](auto x) {
      using C = decltype(x);
      const C inner = static_cast<C>(kTanhScale) * (x + static_cast<C>(kTanhCube) * x * x * x);
      return static_cast<C>(0.5) * x * (1 + std::tanh(inner));
    });
  } else {
    map<1>(call, [](auto x) {
      using C = decltype(x);
      return x * static_cast<C>(0.5) * (1 + std::erf(x * static_cast<C>(std::numbers::sqrt2 / 2)));
    });
  }
}

void gelu_backward(KernelCall& call) {
  if (call.attr.i[0] != 0) {
    map<2>(call, [](auto gradient, auto x) {
      using C = decltype(x);
      const C t = std::tanh(static_cast<C>(kTanhScale) * (x + static_cast<C>(kTanhCube) * x * x * x));
      const C slope = static_cast<C>(kTanhScale) * (1 + 3 * static_cast<C>(kTanhCube) * x * x);
      return gradient * static_cast<C>(0.5) * ((1 + t) + x * (1 - t * t) * slope);
    });
  } else {
    map<2>(call, [](auto gradient, auto x) {
      using C = decltype(x);
      const C cdf = static_cast<C>(0.5) * (1 + std::erf(x * static_cast<C>(std::numbers::sqrt2 / 2)));
      const C density =
          static_cast<C>(std::numbers::inv_sqrtpi * std::numbers::sqrt2 / 2) * std::exp(static_cast<C>(-0.5) * x * x);
      return gradient * (cdf + x * density);
    });
  }
}

void dropout_backward(KernelCall& call) {
  const double scale = 1 / (1 - call.attr.x);
  map<2>(call, [&](auto gradient, auto kept) { return gradient * kept * static_cast<decltype(gradient)>(scale); });
}

void is_masked(KernelCall& call) {
  map<1>(call, [](auto x) { return static_cast<decltype(x)>(x == -std::numeric_limits<decltype(x)>::infinity()); });
}

void zero_masked_rows(KernelCall& call) {
  map<2>(call, [](auto masked, auto x) { return masked != 0 ? decltype(x){0} : x; });  // x may be NaN
}

}  // namespace ledger::host
