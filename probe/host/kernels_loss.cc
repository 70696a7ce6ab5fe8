// kernels_loss.cc - the negative log-likelihood. Its sum over the tokens is in double.
#include <algorithm>
#include <cmath>
#include <vector>

#include "probe/host/kernels.h"
#include "probe/host/strided_loop.h"

namespace ledger::host {
namespace {

// visit(t, target) for each target that counts; false when one is outside the classes.
template <class Visit>
bool for_each_target(const HostView& targets, std::uint64_t classes, Visit visit) {
  for (std::uint64_t t = 0; t < targets.sizes[0]; ++t) {
    if (int_at(targets, t) == kIgnoreIndex) continue;
    const std::optional<std::uint64_t> target = index_at(targets, t, classes);
    if (!target) return false;
    visit(t, *target);
  }
  return true;
}

constexpr const char* kBadTarget = "a target lies outside the classes";

}  // namespace

void nll_loss(KernelCall& call) {
  const Matrix x = matrix_of(call.in[0]);
  double total = 0;
  std::uint64_t counted = 0;
  const bool valid = for_each_target(call.in[1], x.cols, [&](std::uint64_t t, std::uint64_t target) {
    total -= load_one<double>(x.at(t, target), x.dtype);
    ++counted;
  });
  if (!valid) call.error = kBadTarget;
  const double divisor = call.attr.i[0] == 1 ? 1.0 : static_cast<double>(counted);
  store_one(call.out[0].data, total / divisor, call.out[0].dtype);
  store_one(call.out[1].data, static_cast<double>(counted), call.out[1].dtype);
}

void nll_loss_backward(KernelCall& call) {
  const Matrix out = matrix_of(call.out[0]);
  generate<float>(call.out[0], [](std::uint64_t) { return 0.0f; });
  const double gradient = load_one<double>(call.in[0].data, call.in[0].dtype);
  const double weight = call.attr.i[0] == 1 ? 1.0 : load_one<double>(call.in[2].data, call.in[2].dtype);
  const bool valid = for_each_target(call.in[1], out.cols, [&](std::uint64_t t, std::uint64_t target) {
    store_one(out.at(t, target), -gradient / weight, out.dtype);
  });
  if (!valid) call.error = kBadTarget;
}

namespace {

// One row of logits becomes its gradient; returns its loss. Both are divided by `counted`.
double loss_of_row(std::vector<double>& row, std::uint64_t target, double counted) {
  const double largest = *std::max_element(row.begin(), row.end());
  double total = 0;
  for (const double logit : row)
    total += std::exp(logit - largest);
  const double loss = largest + std::log(total) - row[target];
  for (double& logit : row)
    logit = std::exp(logit - largest) / total / counted;
  row[target] -= 1 / counted;
  return loss / counted;
}

}  // namespace

void liger_cross_entropy(KernelCall& call) {
  const Matrix logits = matrix_of(call.out[0]);
  const HostView &targets = call.in[1], &every_target = call.in[2], &losses = call.out[1];
  double counted = 0;
  for (std::uint64_t t = 0; t < every_target.sizes[0]; ++t)
    counted += int_at(every_target, t) == kIgnoreIndex ? 0 : 1;
  std::vector<double> row(logits.cols);
  for (std::uint64_t t = 0; t < logits.rows; ++t) {
    double loss = 0;
    if (int_at(targets, t) == kIgnoreIndex) {
      std::fill(row.begin(), row.end(), 0.0);
    } else if (const auto target = index_at(targets, t, logits.cols)) {
      load_strip(row.data(), logits.at(t, 0), logits.col_stride, logits.cols, logits.dtype);
      loss = loss_of_row(row, *target, counted);
    } else {
      call.error = kBadTarget;
      return;
    }
    store_strip(logits.at(t, 0), logits.col_stride, row.data(), logits.cols, logits.dtype);
    store_one(losses.data + static_cast<std::ptrdiff_t>(t) * losses.byte_stride(0), loss, losses.dtype);
  }
}

}  // namespace ledger::host
