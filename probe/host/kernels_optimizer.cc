// kernels_optimizer.cc - AdamW as PyTorch's fused kernel computes it (aten/src/ATen/native/cuda/fused_adam_utils.cuh):
// moments are kept in the parameter's dtype, but the update uses them before they are rounded.
#include <array>
#include <cmath>

#include "probe/host/kernels.h"
#include "probe/host/strided_loop.h"

namespace ledger::host {
namespace {

template <class C>
struct Rates {
  C lr, decay, beta1, beta2, eps, step_size, correction2_sqrt;
};

template <class C>
Rates<C> rates_at(const AdamW& adamw, double step) {
  const double correction1 = 1 - std::pow(adamw.beta1, step);
  const double correction2 = 1 - std::pow(adamw.beta2, step);
  return {static_cast<C>(adamw.lr),
          static_cast<C>(adamw.lr * adamw.weight_decay),
          static_cast<C>(adamw.beta1),
          static_cast<C>(adamw.beta2),
          static_cast<C>(adamw.eps),
          static_cast<C>(adamw.lr / correction1),
          static_cast<C>(std::sqrt(correction2))};
}

enum Operand : std::size_t { kGradient, kParameter, kAverage, kSquare, kOperands };

template <class C>
void update(KernelCall& call, const Rates<C>& rates) {
  const std::array<HostView, kOperands> operands = {call.in[0], call.out[0], call.out[1], call.out[2]};
  std::array<std::array<C, kStrip>, kOperands> strip;
  const StridedLoop<kOperands> loop(operands[kParameter], operands);
  const auto& steps = loop.steps[0];
  loop.for_each_row([&](const auto& at, std::size_t row) {
    in_strips(row, [&](std::size_t first, std::size_t count) {
      const auto place = [&](std::size_t n) { return at[n] + static_cast<std::ptrdiff_t>(first) * steps[n]; };
      for (std::size_t n = 0; n < kOperands; ++n) {
        load_strip(strip[n].data(), place(n), steps[n], count, operands[n].dtype);
      }
      auto& [g, p, m, v] = strip;
      for (std::size_t i = 0; i < count; ++i) {
        p[i] -= rates.decay * p[i];
        m[i] = rates.beta1 * m[i] + (1 - rates.beta1) * g[i];
        v[i] = rates.beta2 * v[i] + (1 - rates.beta2) * g[i] * g[i];
        p[i] -= rates.step_size * m[i] / (std::sqrt(v[i]) / rates.correction2_sqrt + rates.eps);
      }
      for (std::size_t n = kParameter; n < kOperands; ++n) {
        store_strip(place(n), steps[n], strip[n].data(), count, operands[n].dtype);
      }
    });
  });
}

}  // namespace

void adamw(KernelCall& call) {
  const HostView& counter = call.out[3];
  const double step = load_one<double>(counter.data, counter.dtype) + 1;
  store_one(counter.data, step, counter.dtype);
  if (needs_double(call)) {
    update(call, rates_at<double>(call.trace.adamw, step));
  } else {
    update(call, rates_at<float>(call.trace.adamw, step));
  }
}

}  // namespace ledger::host
