// kernels_elementwise.cc - operators that treat each element alone, with broadcasting.
//
// Rows are handled in strips: load and widen, compute in float or double, round and store. In-place operators need no
// kernels of their own, for a strip is read before it is written.
#include <array>

#include "probe/host/kernels.h"
#include "probe/host/strided_loop.h"
#include "probe/math/elementwise.h"

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

}  // namespace

void copy(KernelCall& call) {
  if (call.in[0].dtype == call.out[0].dtype && broadcasts_to(call.in[0], call.out[0])) {
    move_elements(call.out[0], call.in[0]);
  } else {
    map<1>(call, math::Identity{});
  }
}

void add(KernelCall& call) {
  map<2>(call, math::Add{});
}

void add_scalar(KernelCall& call) {
  map<1>(call, math::AddScalar{call.attr.x});
}

void mul(KernelCall& call) {
  map<2>(call, math::Multiply{});
}

void mul_scalar(KernelCall& call) {
  map<1>(call, math::MulScalar{call.attr.x});
}

void div_scalar(KernelCall& call) {
  map<1>(call, math::DivScalar{call.attr.x});
}

void sub(KernelCall& call) {
  map<2>(call, math::Subtract{});
}

void div(KernelCall& call) {
  map<2>(call, math::Divide{});
}

void rsub_scalar(KernelCall& call) {
  map<1>(call, math::RsubScalar{call.attr.x});
}

void neg(KernelCall& call) {
  map<1>(call, math::Negative{});
}

void pow_scalar(KernelCall& call) {
  if (call.attr.x == 2) {  // the norms' square; PyTorch multiplies, too
    map<1>(call, math::Square{});
  } else {
    map<1>(call, math::PowScalar{call.attr.x});
  }
}

void sqrt(KernelCall& call) {
  map<1>(call, math::Sqrt{});
}

void rsqrt(KernelCall& call) {
  map<1>(call, math::Rsqrt{});
}

void reciprocal(KernelCall& call) {
  map<1>(call, math::Reciprocal{});
}

void clamp_max(KernelCall& call) {
  if (call.attr.i[0] != 0) {
    map<1>(call, math::Clamp{call.attr.x});
  } else {
    map<1>(call, math::ClampMax{call.attr.x});
  }
}

void outside(KernelCall& call) {
  if (call.attr.i[0] != 0) {
    map<1>(call, math::Outside{call.attr.x});
  } else {
    map<1>(call, math::Above{call.attr.x});
  }
}

void logical_not(KernelCall& call) {
  map<1>(call, math::RsubScalar{1});
}

void floor(KernelCall& call) {
  map<1>(call, math::Floor{});
}

void log1p(KernelCall& call) {
  map<1>(call, math::Log1p{});
}

void exp(KernelCall& call) {
  map<1>(call, math::Exp{});
}

void log(KernelCall& call) {
  map<1>(call, math::Log{});
}

void log_sigmoid(KernelCall& call) {
  map<1>(call, math::LogSigmoid{});
}

void logaddexp(KernelCall& call) {
  map<2>(call, math::LogAddExp{});
}

void logical_or(KernelCall& call) {
  map<2>(call, math::Or{});
}

void cos(KernelCall& call) {
  map<1>(call, math::Cos{});
}

void sin(KernelCall& call) {
  map<1>(call, math::Sin{});
}

void silu(KernelCall& call) {
  map<1>(call, math::Silu{});
}

void swiglu(KernelCall& call) {
  if (call.attr.i[0] != 0) {
    map<2>(call, math::Geglu{});
  } else {
    map<2>(call, math::Swiglu{});
  }
}

void silu_backward(KernelCall& call) {
  map<2>(call, math::SiluBackward{});
}

void relu(KernelCall& call) {
  map<1>(call, math::Relu{});
}

void threshold_backward(KernelCall& call) {
  map<2>(call, math::ThresholdBackward{});
}

void tanh(KernelCall& call) {
  map<1>(call, math::Tanh{});
}

void tanh_backward(KernelCall& call) {
  map<2>(call, math::TanhBackward{});
}

void sigmoid(KernelCall& call) {
  map<1>(call, math::Sigmoid{});
}

void sigmoid_backward(KernelCall& call) {
  map<2>(call, math::SigmoidBackward{});
}

void masked_fill(KernelCall& call) {
  map<2>(call, math::MaskedFill{call.attr.x});
}

void gelu(KernelCall& call) {
  if (call.attr.i[0] != 0) {
    map<1>(call, math::GeluTanh{});
  } else {
    map<1>(call, math::GeluErf{});
  }
}

void gelu_backward(KernelCall& call) {
  if (call.attr.i[0] != 0) {
    map<2>(call, math::GeluTanhBackward{});
  } else {
    map<2>(call, math::GeluErfBackward{});
  }
}

void dropout_backward(KernelCall& call) {
  map<2>(call, math::DropoutBackward{1 / (1 - call.attr.x)});
}

void is_masked(KernelCall& call) {
  map<1>(call, math::IsMasked{});
}

void zero_masked_rows(KernelCall& call) {
  map<2>(call, math::ZeroMaskedRows{});
}

}  // namespace ledger::host
