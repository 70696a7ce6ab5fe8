// kernels_complex.cc - complex numbers as pairs along the last dimension.
#include <cmath>

#include "probe/host/kernels.h"
#include "probe/host/strided_loop.h"

namespace ledger::host {
namespace {

std::byte* place(std::byte* row, const HostView& view, std::size_t i) {
  return row + static_cast<std::ptrdiff_t>(i) * last_step(view);
}

template <class C>
C get(std::byte* row, const HostView& view, std::size_t i) {
  return load_one<C>(place(row, view, i), view.dtype);
}

template <class C>
void product(KernelCall& call) {
  const HostView &out = call.out[0], &a = call.in[0], &b = call.in[1];
  const C sign = call.attr.i[0] != 0 ? C{-1} : C{1};
  for_each_vector<3>({out, a, b}, [&](const auto& at) {
    for (std::size_t i = 0; i < out.last_size(); i += 2) {
      const C real = get<C>(at[1], a, i), imaginary = get<C>(at[1], a, i + 1);
      const C cosine = get<C>(at[2], b, i), sine = sign * get<C>(at[2], b, i + 1);
      store_one(place(at[0], out, i), real * cosine - imaginary * sine, out.dtype);
      store_one(place(at[0], out, i + 1), real * sine + imaginary * cosine, out.dtype);
    }
  });
}

}  // namespace

void polar(KernelCall& call) {
  const HostView &out = call.out[0], &angles = call.in[0];
  for_each_vector<2>({out, angles}, [&](const auto& at) {
    for (std::size_t i = 0; i < angles.last_size(); ++i) {
      const double angle = get<double>(at[1], angles, i);
      store_one(place(at[0], out, 2 * i), std::cos(angle), out.dtype);
      store_one(place(at[0], out, 2 * i + 1), std::sin(angle), out.dtype);
    }
  });
}

void complex_mul(KernelCall& call) {
  (needs_double(call) ? product<double> : product<float>)(call);
}

}  // namespace ledger::host
