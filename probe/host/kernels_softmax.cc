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

template <class C>
void softmax_rows(KernelCall& call) {
  map_rows<C>(call, [](std::vector<C>& x, C largest, double total) {
    for (C& value : x)
      value = static_cast<C>(static_cast<double>(std::exp(value - largest)) / total);
  });
}

template <class C>
void softmax_backward_rows(KernelCall& call) {
  map_gradient_rows<C>(call, [](std::vector<C>& g, const std::vector<C>& y) {
    double total = 0;
    for (std::size_t i = 0; i < g.size(); ++i)
      total += static_cast<double>(g[i]) * static_cast<double>(y[i]);
    for (std::size_t i = 0; i < g.size(); ++i)
      g[i] = y[i] * (g[i] - static_cast<C>(total));
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
