// optimizer.cc - AdamW and SGD as PyTorch computes them; probe/host/kernels_optimizer.cc names the sources.
#include <cmath>

#include "probe/device/kernels.h"
#include "probe/device/memory.h"

namespace ledger::LEDGER_DEVICE {
namespace {

constexpr double kMomentum = 0.9;

template <std::size_t N>
bool same_shapes(Call& call, const std::array<Operand, N>& operands) {
  for (const Operand& operand : operands) {
    if (host::broadcasts_to(operand, operands.back())) continue;
    call.error = "a gradient or state has another shape than its parameter";
    return false;
  }
  return true;
}

// Body<double> or Body<float> over the inputs, then the outputs.
template <template <class> class Body, std::size_t N, class... Constants>
void update(Call& call, const std::array<Operand, N>& operands, const Constants&... constants) {
  if (!same_shapes(call, operands)) return;
  const Strips<N> strips(operands.back(), operands);
  if (needs_double(call)) {
    for_elements(call, strips.count(), Body<double>{strips, constants...});
  } else {
    for_elements(call, strips.count(), Body<float>{strips, constants...});
  }
}

// The step counter, and what depends on nothing else, to scratch memory.
struct CountStep {
  std::byte* counter;  // nullptr: the caller counts
  DType dtype;
  double given;
  AdamW rates;
  double* scratch;

  LEDGER_DEVICE_ONLY void operator()(std::uint64_t) const {
    const double step = counter == nullptr ? given : load<double>(counter, dtype) + 1;
    if (counter != nullptr) store(counter, step, dtype);
    scratch[0] = rates.lr / (1 - std::pow(rates.beta1, step));
    scratch[1] = std::sqrt(1 - std::pow(rates.beta2, step));
  }
};

template <class C>
struct FusedAdamW {
  Strips<4> strips;  // gradient, exp_avg, exp_avg_sq, parameter
  AdamW rates;
  const double* scratch;

  LEDGER_DEVICE_ONLY void operator()(std::uint64_t strip) const {
    const auto at = strips.place(strip);
    C g[kStrip] = {}, m[kStrip] = {}, v[kStrip] = {}, p[kStrip] = {};
    strips.read(at, 0, g);
    strips.read(at, 1, m);
    strips.read(at, 2, v);
    strips.read(at, 3, p);
    const C beta1 = static_cast<C>(rates.beta1), beta2 = static_cast<C>(rates.beta2);
    const C decay = static_cast<C>(rates.lr * rates.weight_decay), eps = static_cast<C>(rates.eps);
    const C step_size = static_cast<C>(scratch[0]), correction = static_cast<C>(scratch[1]);
    LEDGER_UNROLL
    for (unsigned i = 0; i < kStrip; ++i) {
      p[i] -= decay * p[i];
      m[i] = beta1 * m[i] + (1 - beta1) * g[i];
      v[i] = beta2 * v[i] + (1 - beta2) * g[i] * g[i];
      p[i] -= step_size * m[i] / (std::sqrt(v[i]) / correction + eps);
    }
    strips.write(at, 1, m);
    strips.write(at, 2, v);
    strips.write(at, 3, p);
  }
};

// Where rounded() stands, a library call ends and its result goes to memory.
template <class C>
struct Moments {
  Strips<3> strips;  // gradient, exp_avg, exp_avg_sq
  AdamW rates;

  LEDGER_DEVICE_ONLY void operator()(std::uint64_t strip) const {
    const auto at = strips.place(strip);
    C g[kStrip] = {}, m[kStrip] = {}, v[kStrip] = {};
    strips.read(at, 0, g);
    strips.read(at, 1, m);
    strips.read(at, 2, v);
    const C beta2 = static_cast<C>(rates.beta2);
    const C weight1 = static_cast<C>(1 - rates.beta1), weight2 = static_cast<C>(1 - rates.beta2);
    LEDGER_UNROLL
    for (unsigned i = 0; i < kStrip; ++i) {
      m[i] = m[i] + weight1 * (g[i] - m[i]);
      v[i] = rounded(v[i] * beta2, strips.dtypes[2]) + weight2 * (g[i] * g[i]);
    }
    strips.write(at, 1, m);
    strips.write(at, 2, v);
  }
};

template <class C>
struct Update {
  Strips<3> strips;  // exp_avg, sqrt(exp_avg_sq), parameter
  AdamW rates;
  double step_size, correction;  // the latter 1 where it was divided by before

  LEDGER_DEVICE_ONLY void operator()(std::uint64_t strip) const {
    const auto at = strips.place(strip);
    C m[kStrip] = {}, root[kStrip] = {}, p[kStrip] = {};
    strips.read(at, 0, m);
    strips.read(at, 1, root);
    strips.read(at, 2, p);
    const C keep = static_cast<C>(1 - rates.lr * rates.weight_decay), eps = static_cast<C>(rates.eps);
    const C size = static_cast<C>(step_size), divisor = static_cast<C>(correction);
    LEDGER_UNROLL
    for (unsigned i = 0; i < kStrip; ++i) {
      const C kept = rounded(p[i] * keep, strips.dtypes[2]);
      const C corrected = correction == 1 ? root[i] : rounded(root[i] / divisor, strips.dtypes[1]);
      p[i] = kept + size * (m[i] / rounded(corrected + eps, strips.dtypes[1]));
    }
    strips.write(at, 2, p);
  }
};

template <class C>
struct Momentum {
  Strips<2> strips;  // gradient, buffer

  LEDGER_DEVICE_ONLY void operator()(std::uint64_t strip) const {
    const auto at = strips.place(strip);
    C g[kStrip] = {}, buffer[kStrip] = {};
    strips.read(at, 0, g);
    strips.read(at, 1, buffer);
    LEDGER_UNROLL
    for (unsigned i = 0; i < kStrip; ++i)
      buffer[i] = rounded(buffer[i] * static_cast<C>(kMomentum), strips.dtypes[1]) + g[i];
    strips.write(at, 1, buffer);
  }
};

template <class C>
struct Sgd {
  Strips<2> strips;  // direction, parameter
  double lr;

  LEDGER_DEVICE_ONLY void operator()(std::uint64_t strip) const {
    const auto at = strips.place(strip);
    C direction[kStrip] = {}, p[kStrip] = {};
    strips.read(at, 0, direction);
    strips.read(at, 1, p);
    LEDGER_UNROLL
    for (unsigned i = 0; i < kStrip; ++i)
      p[i] -= static_cast<C>(lr) * direction[i];
    strips.write(at, 1, p);
  }
};

}  // namespace

void adamw(Call& call) {
  const Operand counter = call.out.size() > 3 ? call.out[3] : Operand{};
  double* scratch = call.services.scratch;
  const AdamW& rates = call.trace.adamw;
  for_elements(call, 1, CountStep{counter.data, counter.dtype, static_cast<double>(call.attr.i[0]), rates, scratch});
  update<FusedAdamW, 4>(call, {call.in[0], call.out[1], call.out[2], call.out[0]}, rates,
                        static_cast<const double*>(scratch));
}

void adamw_moments(Call& call) {
  update<Moments, 3>(call, {call.in[0], call.out[0], call.out[1]}, call.trace.adamw);
}

void adamw_update(Call& call) {
  const AdamW& rates = call.trace.adamw;
  const auto step = static_cast<double>(call.attr.i[0]);
  const double step_size = -rates.lr / (1 - std::pow(rates.beta1, step));
  const double correction = call.attr.i[1] != 0 ? 1 : std::sqrt(1 - std::pow(rates.beta2, step));
  update<Update, 3>(call, {call.in[0], call.in[1], call.out[0]}, rates, step_size, correction);
}

void momentum_update(Call& call) {
  update<Momentum, 2>(call, {call.in[0], call.out[0]});
}

void sgd_update(Call& call) {
  update<Sgd, 2>(call, {call.in[0], call.out[0]}, call.trace.adamw.lr);
}

}  // namespace ledger::LEDGER_DEVICE
