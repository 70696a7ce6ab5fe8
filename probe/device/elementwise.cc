// elementwise.cc - operators that treat each element alone, with broadcasting.
//
// One kernel serves all formulas of as many operands: the choice is made once a strip, costs next to nothing beside the
// memory it waits for, and saves sixty compilations.
#include "probe/math/elementwise.h"

#include "probe/device/kernels.h"
#include "probe/device/memory.h"
#include "probe/initial_values.h"

namespace ledger::LEDGER_DEVICE {
namespace {

template <class C, class F>
LEDGER_DEVICE_ONLY inline void map_strip(C (&x)[kStrip], F f) {
  LEDGER_UNROLL
  for (unsigned i = 0; i < kStrip; ++i)
    x[i] = f(x[i]);
}

template <class C, class F>
LEDGER_DEVICE_ONLY inline void map_strip(C (&x)[kStrip], const C (&y)[kStrip], F f) {
  LEDGER_UNROLL
  for (unsigned i = 0; i < kStrip; ++i)
    x[i] = f(x[i], y[i]);
}

template <class C>
struct Unary {
  Strips<2> strips;  // result, operand
  OpKind op;
  double scalar;
  bool variant;  // as the operator's a.i[0] has it

  LEDGER_DEVICE_ONLY void operator()(std::uint64_t strip) const {
    const auto p = strips.place(strip);
    C x[kStrip] = {};
    strips.read(p, 1, x);
    compute(x);
    strips.write(p, 0, x);
  }

  LEDGER_DEVICE_ONLY void compute(C (&x)[kStrip]) const {
    switch (op) {
      case OpKind::add_scalar:
        return map_strip(x, math::AddScalar{scalar});
      case OpKind::rsub_scalar:
        return map_strip(x, math::RsubScalar{scalar});
      case OpKind::mul_scalar:
        return map_strip(x, math::MulScalar{scalar});
      case OpKind::div_scalar:
        return map_strip(x, math::DivScalar{scalar});
      case OpKind::neg:
        return map_strip(x, math::Negative{});
      case OpKind::pow_scalar:  // the norms' square; PyTorch multiplies, too
        return scalar == 2 ? map_strip(x, math::Square{}) : map_strip(x, math::PowScalar{scalar});
      case OpKind::sqrt:
      case OpKind::foreach_sqrt:
        return map_strip(x, math::Sqrt{});
      case OpKind::rsqrt:
        return map_strip(x, math::Rsqrt{});
      case OpKind::reciprocal:
        return map_strip(x, math::Reciprocal{});
      case OpKind::clamp_max:
        return variant ? map_strip(x, math::Clamp{scalar}) : map_strip(x, math::ClampMax{scalar});
      case OpKind::outside:
        return variant ? map_strip(x, math::Outside{scalar}) : map_strip(x, math::Above{scalar});
      case OpKind::logical_not:
        return map_strip(x, math::RsubScalar{1});
      case OpKind::floor:
        return map_strip(x, math::Floor{});
      case OpKind::log1p:
        return map_strip(x, math::Log1p{});
      case OpKind::exp:
        return map_strip(x, math::Exp{});
      case OpKind::log:
        return map_strip(x, math::Log{});
      case OpKind::log_sigmoid:
        return map_strip(x, math::LogSigmoid{});
      case OpKind::cos:
        return map_strip(x, math::Cos{});
      case OpKind::sin:
        return map_strip(x, math::Sin{});
      case OpKind::silu:
        return map_strip(x, math::Silu{});
      case OpKind::gelu:
        return variant ? map_strip(x, math::GeluTanh{}) : map_strip(x, math::GeluErf{});
      case OpKind::relu:
        return map_strip(x, math::Relu{});
      case OpKind::sigmoid:
        return map_strip(x, math::Sigmoid{});
      case OpKind::tanh:
        return map_strip(x, math::Tanh{});
      case OpKind::is_masked:
        return map_strip(x, math::IsMasked{});
      default:  // to_copy, clone, copy_into
        return;
    }
  }
};

template <class C>
struct Binary {
  Strips<3> strips;  // result, operands
  OpKind op;
  double scalar;
  bool variant;

  LEDGER_DEVICE_ONLY void operator()(std::uint64_t strip) const {
    const auto p = strips.place(strip);
    C x[kStrip] = {}, y[kStrip] = {};
    strips.read(p, 1, x);
    strips.read(p, 2, y);
    compute(x, y);
    strips.write(p, 0, x);
  }

  LEDGER_DEVICE_ONLY void compute(C (&x)[kStrip], const C (&y)[kStrip]) const {
    switch (op) {
      case OpKind::sub:
        return map_strip(x, y, math::Subtract{});
      case OpKind::mul:
      case OpKind::mul_inplace:
        return map_strip(x, y, math::Multiply{});
      case OpKind::div:
      case OpKind::div_inplace:
        return map_strip(x, y, math::Divide{});
      case OpKind::logaddexp:
        return map_strip(x, y, math::LogAddExp{});
      case OpKind::logical_or:
        return map_strip(x, y, math::Or{});
      case OpKind::silu_backward:
        return map_strip(x, y, math::SiluBackward{});
      case OpKind::swiglu:
        return variant ? map_strip(x, y, math::Geglu{}) : map_strip(x, y, math::Swiglu{});
      case OpKind::gelu_backward:
        return variant ? map_strip(x, y, math::GeluTanhBackward{}) : map_strip(x, y, math::GeluErfBackward{});
      case OpKind::threshold_backward:
        return map_strip(x, y, math::ThresholdBackward{});
      case OpKind::tanh_backward:
        return map_strip(x, y, math::TanhBackward{});
      case OpKind::sigmoid_backward:
        return map_strip(x, y, math::SigmoidBackward{});
      case OpKind::masked_fill:
        return map_strip(x, y, math::MaskedFill{scalar});
      case OpKind::dropout_backward:
        return map_strip(x, y, math::DropoutBackward{1 / (1 - scalar)});
      case OpKind::zero_masked_rows:
        return map_strip(x, y, math::ZeroMaskedRows{});
      default:  // add, add_inplace
        return map_strip(x, y, math::Add{});
    }
  }
};

bool all_broadcast(Call& call, std::size_t inputs) {
  for (std::size_t n = 0; n < inputs; ++n) {
    if (host::broadcasts_to(call.in[n], call.out[0])) continue;
    call.error = "an input does not broadcast to the output's shape";
    return false;
  }
  return true;
}

template <template <class> class Kernel, std::size_t N>
void map(Call& call, const std::array<Operand, N>& operands) {
  if (!all_broadcast(call, N - 1)) return;
  const Strips<N> strips(call.out[0], operands);
  const bool variant = call.attr.i[0] != 0;
  if (needs_double(call)) {
    for_elements(call, strips.count(), Kernel<double>{strips, call.run.op, call.attr.x, variant});
  } else {
    for_elements(call, strips.count(), Kernel<float>{strips, call.run.op, call.attr.x, variant});
  }
}

}  // namespace

void unary(Call& call) {
  map<Unary, 2>(call, {call.out[0], call.in[0]});
}

void binary(Call& call) {
  map<Binary, 3>(call, {call.out[0], call.in[0], call.in[1]});
}

void copy(Call& call) {
  if (call.in[0].dtype == call.out[0].dtype && host::broadcasts_to(call.in[0], call.out[0])) {
    move_elements(call, call.out[0], call.in[0]);
  } else {
    unary(call);
  }
}

namespace {

// The mask is a hash of place and index, as the host draws it (probe/host/kernels_dropout.cc).
template <class C>
struct Dropout {
  Strips<3> strips;  // result, mask, operand
  std::uint64_t place;
  double kept;

  LEDGER_DEVICE_ONLY void operator()(std::uint64_t strip) const {
    const auto p = strips.place(strip);
    C x[kStrip] = {}, mask[kStrip];
    strips.read(p, 2, x);
    const C scale = static_cast<C>(1 / kept);
    LEDGER_UNROLL
    for (unsigned i = 0; i < kStrip; ++i) {
      mask[i] = unit_value(place + p.index + i) < kept ? C{1} : C{0};
      x[i] *= mask[i] * scale;
    }
    strips.write(p, 0, x);
    strips.write(p, 1, mask);
  }
};

struct AdditiveMask {
  Strips<2> strips;
  double hidden;

  LEDGER_DEVICE_ONLY void operator()(std::uint64_t strip) const {
    const auto p = strips.place(strip);
    double x[kStrip] = {};
    strips.read(p, 1, x);
    LEDGER_UNROLL
    for (unsigned i = 0; i < kStrip; ++i)
      x[i] = x[i] != 0 ? 0.0 : hidden;
    strips.write(p, 0, x);
  }
};

// int64 to anything; quotients of places are exact in double.
struct OfInteger {
  Strips<2> strips;
  OpKind op;
  std::int64_t operand;

  LEDGER_DEVICE_ONLY double value(std::int64_t x) const {
    if (op == OpKind::floor_divide) {
      const std::int64_t quotient = x / operand;  // places: never negative
      return static_cast<double>(quotient);
    }
    if (op == OpKind::remainder) return static_cast<double>(x % operand);
    if (op == OpKind::less) return x < operand ? 1.0 : 0.0;
    if (op == OpKind::at_least) return x >= operand ? 1.0 : 0.0;
    return (x == operand) == (op == OpKind::equal) ? 1.0 : 0.0;
  }
  LEDGER_DEVICE_ONLY void operator()(std::uint64_t strip) const {
    const auto p = strips.place(strip);
    double result[kStrip];
    LEDGER_UNROLL
    for (unsigned i = 0; i < kStrip; ++i) {
      const auto at = p.at[1] + static_cast<std::int64_t>(i) * strips.walk.steps[0][1];
      result[i] = i < p.count ? value(*reinterpret_cast<const std::int64_t*>(at)) : 0.0;
    }
    strips.write(p, 0, result);
  }
};

}  // namespace

void dropout(Call& call) {
  const Strips<3> strips(call.out[0], {call.out[0], call.out[1], call.in[0]});
  const std::uint64_t place = host::dropout_place(call.seed + call.seat.rank, call.trace, call.run, call.forward_pass);
  if (needs_double(call)) {
    for_elements(call, strips.count(), Dropout<double>{strips, place, 1 - call.attr.x});
  } else {
    for_elements(call, strips.count(), Dropout<float>{strips, place, 1 - call.attr.x});
  }
}

void additive_mask(Call& call) {
  const Strips<2> strips(call.out[0], {call.out[0], call.in[0]});
  const double hidden =
      call.attr.x != 0 ? -std::numeric_limits<double>::infinity() : host::lowest_finite(call.out[0].dtype);
  for_elements(call, strips.count(), AdditiveMask{strips, hidden});
}

void of_integer(Call& call) {
  const Strips<2> strips(call.out[0], {call.out[0], call.in[0]});
  for_elements(call, strips.count(), OfInteger{strips, call.run.op, call.attr.i[0]});
}

}  // namespace ledger::LEDGER_DEVICE
