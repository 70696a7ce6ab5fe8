// kernels_loss.cc - log-softmax and the negative log-likelihood, row by row. Sums over the vocabulary are in double.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "probe/host/kernels.h"
#include "probe/host/strided_loop.h"

namespace ledger::host {
namespace {

// row(pointers to the first element of each operand's row) for every row of the last dimension.
template <std::size_t N, class Row>
void for_each_vector(const std::array<HostView, N>& operands, Row row) {
  std::array<HostView, N> leading = operands;
  for (HostView& view : leading)
    view.rank = static_cast<std::uint8_t>(view.rank - 1);
  const StridedLoop<N> loop(leading[0], leading);
  loop.for_each_row([&](auto at, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      row(at);
      for (std::size_t n = 0; n < N; ++n)
        at[n] += loop.steps[0][n];
    }
  });
}

std::ptrdiff_t last_step(const HostView& view) {
  return view.byte_stride(view.rank - 1u);
}

template <class C>
void log_softmax_rows(const HostView& out, const HostView& in) {
  const std::size_t width = in.last_size();
  std::vector<C> x(width);
  for_each_vector<2>({out, in}, [&](const auto& at) {
    load_strip(x.data(), at[1], last_step(in), width, in.dtype);
    const C largest = *std::max_element(x.begin(), x.end());
    double total = 0;
    for (const C value : x)
      total += static_cast<double>(std::exp(value - largest));
    const C log_total = static_cast<C>(std::log(total));
    for (C& value : x)
      value = value - largest - log_total;
    store_strip(at[0], last_step(out), x.data(), width, out.dtype);
  });
}

template <class C>
void log_softmax_backward_rows(const HostView& out, const HostView& gradient, const HostView& result) {
  const std::size_t width = out.last_size();
  std::vector<C> g(width), y(width);
  for_each_vector<3>({out, gradient, result}, [&](const auto& at) {
    load_strip(g.data(), at[1], last_step(gradient), width, gradient.dtype);
    load_strip(y.data(), at[2], last_step(result), width, result.dtype);
    double total = 0;
    for (const C value : g)
      total += static_cast<double>(value);
    for (std::size_t i = 0; i < width; ++i)
      g[i] -= std::exp(y[i]) * static_cast<C>(total);
    store_strip(at[0], last_step(out), g.data(), width, out.dtype);
  });
}

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

void log_softmax(KernelCall& call) {
  if (needs_double(call)) {
    log_softmax_rows<double>(call.out[0], call.in[0]);
  } else {
    log_softmax_rows<float>(call.out[0], call.in[0]);
  }
}

void log_softmax_backward(KernelCall& call) {
  if (needs_double(call)) {
    log_softmax_backward_rows<double>(call.out[0], call.in[0], call.in[1]);
  } else {
    log_softmax_backward_rows<float>(call.out[0], call.in[0], call.in[1]);
  }
}

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
