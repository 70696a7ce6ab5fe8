// kernels_softmax.cc - softmax and log-softmax over the last dimension. Sums over a row are in double.
#include <algorithm>
#include <cmath>
#include <vector>

#include "probe/host/kernels.h"
#include "probe/host/strided_loop.h"

namespace ledger::host {
namespace {

// out = f(row, largest of the row, sum of exp(x - largest)), row by row, in place on a buffer of the compute type.
template <class C, class F>
void map_rows(KernelCall& call, F f) {
  const HostView &out = call.out[0], &in = call.in[0];
  const std::size_t width = in.last_size();
  std::vector<C> x(width);
  for_each_vector<2>({out, in}, [&](const auto& at) {
    load_strip(x.data(), at[1], last_step(in), width, in.dtype);
    const C largest = *std::max_element(x.begin(), x.end());
    double total = 0;
    for (const C value : x)
      total += static_cast<double>(std::exp(value - largest));
    f(x, largest, total);
    store_strip(at[0], last_step(out), x.data(), width, out.dtype);
  });
}

// out = f(gradient, result) row by row; f writes to its first argument.
template <class C, class F>
void map_gradient_rows(KernelCall& call, F f) {
  const HostView &out = call.out[0], &gradient = call.in[0], &result = call.in[1];
  const std::size_t width = out.last_size();
  std::vector<C> g(width), y(width);
  for_each_vector<3>({out, gradient, result}, [&](const auto& at) {
    load_strip(g.data(), at[1], last_step(gradient), width, gradient.dtype);
    load_strip(y.data(), at[2], last_step(result), width, result.dtype);
    f(g, y);
    store_strip(at[0], last_step(out), g.data(), width, out.dtype);
  });
}

// How much of a row counts: all of it, or as far as a query sees.
std::size_t seen_of_row(const KernelCall& call, std::size_t row) {
  const HostView& in = call.in[0];
  if (call.attr.i[0] == 0) return in.last_size();
  return std::min<std::size_t>(in.last_size(), row % in.sizes[in.rank - 2u] + 1);
}

template <class C>
void softmax_rows(KernelCall& call) {
  const HostView &out = call.out[0], &in = call.in[0];
  const C scale = static_cast<C>(call.attr.x == 0 ? 1 : call.attr.x);
  std::vector<C> x(in.last_size());
  std::size_t row = 0;
  for_each_vector<2>({out, in}, [&](const auto& at) {
    load_strip(x.data(), at[1], last_step(in), x.size(), in.dtype);
    const auto end = x.begin() + static_cast<std::ptrdiff_t>(seen_of_row(call, row++));
    const C largest = *std::max_element(x.begin(), end);
    double total = 0;
    for (auto value = x.begin(); value != end; ++value)
      total += static_cast<double>(*value = std::exp(scale * (*value - largest)));
    for (auto value = x.begin(); value != end; ++value)
      *value = static_cast<C>(static_cast<double>(*value) / total);
    std::fill(end, x.end(), C{0});
    store_strip(at[0], last_step(out), x.data(), x.size(), out.dtype);
  });
}

template <class C>
void softmax_backward_rows(KernelCall& call) {
  const C scale = static_cast<C>(call.attr.x == 0 ? 1 : call.attr.x);
  map_gradient_rows<C>(call, [scale](std::vector<C>& g, const std::vector<C>& y) {
    double total = 0;
    for (std::size_t i = 0; i < g.size(); ++i)
      total += static_cast<double>(g[i]) * static_cast<double>(y[i]);
    for (std::size_t i = 0; i < g.size(); ++i)
      g[i] = scale * (y[i] * (g[i] - static_cast<C>(total)));
  });
}

template <class C>
void log_softmax_rows(KernelCall& call) {
  map_rows<C>(call, [](std::vector<C>& x, C largest, double total) {
    const C log_total = static_cast<C>(std::log(total));
    for (C& value : x)
      value = value - largest - log_total;
  });
}

template <class C>
void log_softmax_backward_rows(KernelCall& call) {
  map_gradient_rows<C>(call, [](std::vector<C>& g, const std::vector<C>& y) {
    double total = 0;
    for (const C value : g)
      total += static_cast<double>(value);
    for (std::size_t i = 0; i < g.size(); ++i)
      g[i] -= std::exp(y[i]) * static_cast<C>(total);
  });
}

void in_compute_type(KernelCall& call, KernelFn as_double, KernelFn as_float) {
  (needs_double(call) ? as_double : as_float)(call);
}

}  // namespace

void softmax(KernelCall& call) {
  in_compute_type(call, softmax_rows<double>, softmax_rows<float>);
}

void softmax_backward(KernelCall& call) {
  in_compute_type(call, softmax_backward_rows<double>, softmax_backward_rows<float>);
}

void log_softmax(KernelCall& call) {
  in_compute_type(call, log_softmax_rows<double>, log_softmax_rows<float>);
}

void log_softmax_backward(KernelCall& call) {
  in_compute_type(call, log_softmax_backward_rows<double>, log_softmax_backward_rows<float>);
}

}  // namespace ledger::host
