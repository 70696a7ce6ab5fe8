// kernels_loss.cc - the negative log-likelihood. Its sum over the tokens is in double.
#include <cstring>

#include "probe/host/kernels.h"
#include "probe/host/strided_loop.h"

namespace ledger::host {
namespace {

constexpr std::int64_t kIgnored = -100;  // torch.nn.functional.cross_entropy's default ignore_index

// visit(t, target) for each target that counts; false when one is outside the classes.
template <class Visit>
bool for_each_target(const HostView& targets, std::uint64_t classes, Visit visit) {
  for (std::uint64_t t = 0; t < targets.sizes[0]; ++t) {
    std::int64_t target = 0;
    std::memcpy(&target, targets.data + static_cast<std::ptrdiff_t>(t) * targets.byte_stride(0), sizeof target);
    if (target == kIgnored) continue;
    if (target < 0 || static_cast<std::uint64_t>(target) >= classes) return false;
    visit(t, static_cast<std::uint64_t>(target));
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
  store_one(call.out[0].data, total / static_cast<double>(counted), call.out[0].dtype);
  store_one(call.out[1].data, static_cast<double>(counted), call.out[1].dtype);
}

void nll_loss_backward(KernelCall& call) {
  const Matrix out = matrix_of(call.out[0]);
  generate<float>(call.out[0], [](std::uint64_t) { return 0.0f; });
  const double gradient = load_one<double>(call.in[0].data, call.in[0].dtype);
  const double weight = load_one<double>(call.in[2].data, call.in[2].dtype);
  const bool valid = for_each_target(call.in[1], out.cols, [&](std::uint64_t t, std::uint64_t target) {
    store_one(out.at(t, target), -gradient / weight, out.dtype);
  });
  if (!valid) call.error = kBadTarget;
}

}  // namespace ledger::host
