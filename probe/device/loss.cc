// loss.cc - the negative log-likelihood, and Liger's loss in place.
#include <cmath>

#include "probe/device/kernels.h"
#include "probe/device/memory.h"

namespace ledger::LEDGER_DEVICE {
namespace {

struct Logits {
  const std::byte* data;
  std::int64_t row_step, column_step;
  DType dtype;
  std::uint64_t rows, classes;

  explicit Logits(const Operand& view)
      : data(view.data),
        row_step(view.byte_stride(0)),
        column_step(view.byte_stride(1)),
        dtype(view.dtype),
        rows(view.sizes[0]),
        classes(view.sizes[1]) {}
  LEDGER_DEVICE_ONLY std::byte* at(std::uint64_t row, std::uint64_t column) const {
    return const_cast<std::byte*>(data) + static_cast<std::int64_t>(row) * row_step +
           static_cast<std::int64_t>(column) * column_step;
  }
};

struct Scalar {
  std::byte* at;
  DType dtype;
  explicit Scalar(const Operand& view) : at(view.data), dtype(view.dtype) {}
};

struct NllLoss {
  Logits x;
  Integers targets;
  Scalar loss, weight;
  bool is_sum;
  std::int32_t* fault;

  LEDGER_DEVICE_ONLY void operator()(Team& team, std::uint64_t) const {
    const double total = team.sum<double>(targets.count, [&](std::uint64_t t) {
      const std::int64_t target = targets[t];
      if (target == kIgnoreIndex || !inside(target, x.classes, fault, device::kBadTarget)) return 0.0;
      return -load_float<double>(x.at(t, static_cast<std::uint64_t>(target)), x.dtype);
    });
    const double counted =
        team.sum<double>(targets.count, [&](std::uint64_t t) { return targets[t] == kIgnoreIndex ? 0.0 : 1.0; });
    team.each([&](unsigned lane) {
      if (lane != 0) return;
      store_float(loss.at, total / (is_sum ? 1.0 : counted), loss.dtype);
      store_float(weight.at, counted, weight.dtype);
    });
  }
};

struct NllLossBackward {
  Logits out;
  Integers targets;
  Scalar gradient, weight;
  bool is_sum;
  std::int32_t* fault;

  LEDGER_DEVICE_ONLY void operator()(std::uint64_t t) const {
    const std::int64_t target = targets[t];
    if (target == kIgnoreIndex || !inside(target, out.classes, fault, device::kBadTarget)) return;
    const double divisor = is_sum ? 1.0 : load_float<double>(weight.at, weight.dtype);
    store_float(out.at(t, static_cast<std::uint64_t>(target)),
                -load_float<double>(gradient.at, gradient.dtype) / divisor, out.dtype);
  }
};

// Logits become their gradient; both are divided by the number of targets that count in all chunks.
template <class C>
struct LigerCrossEntropy {
  Logits x;
  Integers targets, every_target;
  Operand losses;
  std::int64_t loss_step;
  std::int32_t* fault;

  LEDGER_DEVICE_ONLY void operator()(Team& team, std::uint64_t row) const {
    const std::int64_t target = targets[row];
    const bool ignored = target == kIgnoreIndex || !inside(target, x.classes, fault, device::kBadTarget);
    const C counted =
        team.sum<C>(every_target.count, [&](std::uint64_t t) { return every_target[t] == kIgnoreIndex ? C{0} : C{1}; });
    const auto logit = [&](std::uint64_t i) { return load_float<C>(x.at(row, i), x.dtype); };
    const C largest = team.over<C>(x.classes, logit(0), Largest{}, logit);
    const C total = team.sum<C>(x.classes, [&](std::uint64_t i) { return std::exp(logit(i) - largest); });
    const C of_target = ignored ? C{0} : logit(static_cast<std::uint64_t>(target));
    team.each([](unsigned) {});  // every lane has read the target's logit before one of them writes there
    team.for_each(x.classes, [&](std::uint64_t i) {
      const C one = i == static_cast<std::uint64_t>(target) ? C{1} : C{0};
      const C gradient = (std::exp(logit(i) - largest) / total - one) / counted;
      store_float(x.at(row, i), ignored ? C{0} : gradient, x.dtype);
    });
    team.each([&](unsigned lane) {
      if (lane != 0) return;
      const C loss = ignored ? C{0} : (largest + std::log(total) - of_target) / counted;
      store_float(losses.data + static_cast<std::int64_t>(row) * loss_step, loss, losses.dtype);
    });
  }
};

}  // namespace

void nll_loss(Call& call) {
  for_teams(call, 1,
            NllLoss{Logits(call.in[0]), Integers(call.in[1]), Scalar(call.out[0]), Scalar(call.out[1]),
                    call.attr.i[0] == 1, call.services.fault});
}

void nll_loss_backward(Call& call) {
  fill_zeros(call);
  const Integers targets(call.in[1]);
  const Operand& weight = call.in.size() > 2 ? call.in[2] : call.in[0];
  for_elements(call, targets.count,
               NllLossBackward{Logits(call.out[0]), targets, Scalar(call.in[0]), Scalar(weight), call.attr.i[0] == 1,
                               call.services.fault});
}

void liger_cross_entropy(Call& call) {
  const Logits x(call.out[0]);
  const Integers targets(call.in[1]), every_target(call.in[2]);
  const Operand& losses = call.out[1];
  const std::int64_t step = losses.byte_stride(0);
  if (call.out[0].dtype == DType::f64) {
    return for_teams(call, x.rows,
                     LigerCrossEntropy<double>{x, targets, every_target, losses, step, call.services.fault});
  }
  for_teams(call, x.rows, LigerCrossEntropy<float>{x, targets, every_target, losses, step, call.services.fault});
}

}  // namespace ledger::LEDGER_DEVICE
