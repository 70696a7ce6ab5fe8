// kernels_fused.cc - operators of the stack native that are no row of another file.
#include <array>
#include <vector>

#include "probe/host/kernels.h"
#include "probe/host/strided_loop.h"
#include "probe/math/elementwise.h"
#include "probe/math/rotary.h"

namespace ledger::host {
namespace {

// x [b, s, n, d] in place: pairs of the first and the second half of each head.
template <class C>
void turn(KernelCall& call) {
  const HostView &x = call.out[0], &frequencies = call.in[1];
  const std::uint64_t width = x.sizes[3], half = width / 2;
  std::vector<float> inverse(half);
  load_strip(inverse.data(), frequencies.data, last_step(frequencies), half, frequencies.dtype);
  std::vector<math::Turn> turns;
  std::vector<C> head(width);
  for (std::uint64_t s = 0; s < x.sizes[1]; ++s) {
    turns.clear();
    for (const float frequency : inverse)
      turns.emplace_back(static_cast<std::uint64_t>(call.attr.i[1]) + s, frequency, call.attr.i[0] != 0);
    HostView at_s = x;
    at_s.data += static_cast<std::ptrdiff_t>(s) * x.byte_stride(1);
    at_s.sizes[1] = 1;
    for_each_vector<1>({at_s}, [&](const auto& at) {
      load_strip(head.data(), at[0], last_step(x), width, x.dtype);
      for (std::uint64_t i = 0; i < half; ++i)
        turns[i](head[i], head[i + half]);
      store_strip(at[0], last_step(x), head.data(), width, x.dtype);
    });
  }
}

// Reads a strip of everything before it writes: the results may lie where gate and up are.
template <class C, class Backward>
void differentiate_gated(KernelCall& call) {
  const std::array<HostView, 5> operands{call.out[0], call.out[1], call.in[0], call.in[1], call.in[2]};
  std::array<std::array<C, kStrip>, 3> strip;
  const StridedLoop<5> loop(call.out[0], operands);
  loop.for_each_row([&](const auto& at, std::size_t row) {
    in_strips(row, [&](std::size_t first, std::size_t count) {
      const auto place = [&](std::size_t n) { return at[n] + static_cast<std::ptrdiff_t>(first) * loop.steps[0][n]; };
      for (std::size_t n = 0; n < 3; ++n)
        load_strip(strip[n].data(), place(n + 2), loop.steps[0][n + 2], count, operands[n + 2].dtype);
      for (std::size_t i = 0; i < count; ++i)
        Backward{}(strip[0][i], strip[1][i], strip[2][i]);
      for (std::size_t n = 0; n < 2; ++n)
        store_strip(place(n), loop.steps[0][n], strip[n + 1].data(), count, operands[n].dtype);
    });
  });
}

template <class Backward>
void differentiate(KernelCall& call) {
  (needs_double(call) ? differentiate_gated<double, Backward> : differentiate_gated<float, Backward>)(call);
}

}  // namespace

void rope(KernelCall& call) {
  (needs_double(call) ? turn<double> : turn<float>)(call);
}

void swiglu_backward(KernelCall& call) {
  (call.attr.i[0] != 0 ? differentiate<math::GegluBackward> : differentiate<math::SwigluBackward>)(call);
}

}  // namespace ledger::host
