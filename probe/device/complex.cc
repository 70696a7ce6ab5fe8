// complex.cc - complex numbers as pairs along the last dimension.
#include <cmath>

#include "probe/device/kernels.h"
#include "probe/device/memory.h"

namespace ledger::LEDGER_DEVICE {
namespace {

struct Polar {
  Rows<2> rows;  // result, angles
  std::uint64_t angles;

  LEDGER_DEVICE_ONLY void operator()(Team& team, std::uint64_t row) const {
    std::byte* at[2];
    rows.leading.locate(row, at);
    team.for_each(angles, [&](std::uint64_t i) {
      const double angle = rows.template get<double>(at, 1, i);
      rows.set(at, 0, 2 * i, std::cos(angle));
      rows.set(at, 0, 2 * i + 1, std::sin(angle));
    });
  }
};

template <class C>
struct ComplexProduct {
  Rows<3> rows;  // result, operands
  bool conjugate;

  LEDGER_DEVICE_ONLY void operator()(Team& team, std::uint64_t row) const {
    std::byte* at[3];
    rows.leading.locate(row, at);
    const C sign = conjugate ? C{-1} : C{1};
    team.for_each(rows.width / 2, [&](std::uint64_t pair) {
      const std::uint64_t i = 2 * pair;
      const C real = rows.template get<C>(at, 1, i), imaginary = rows.template get<C>(at, 1, i + 1);
      const C cosine = rows.template get<C>(at, 2, i), sine = sign * rows.template get<C>(at, 2, i + 1);
      rows.set(at, 0, i, real * cosine - imaginary * sine);
      rows.set(at, 0, i + 1, real * sine + imaginary * cosine);
    });
  }
};

}  // namespace

void polar(Call& call) {
  const Rows<2> rows({call.out[0], call.in[0]});
  for_teams(call, rows.count(), Polar{rows, call.in[0].last_size()});
}

void complex_mul(Call& call) {
  const Rows<3> rows({call.out[0], call.in[0], call.in[1]});
  const bool conjugate = call.attr.i[0] != 0;
  if (needs_double(call)) return for_teams(call, rows.count(), ComplexProduct<double>{rows, conjugate});
  for_teams(call, rows.count(), ComplexProduct<float>{rows, conjugate});
}

}  // namespace ledger::LEDGER_DEVICE
