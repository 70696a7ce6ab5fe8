// kernels_layer_norm.cc - layer and RMS normalisation over the last dimension. Sums over a row are in double.
#include <cmath>
#include <vector>

#include "probe/host/kernels.h"
#include "probe/host/strided_loop.h"

namespace ledger::host {
namespace {

// A vector [h] widened, or `value` throughout where there is none.
template <class C>
std::vector<C> vector_of(const KernelCall& call, std::size_t index, std::size_t width, C value) {
  std::vector<C> result(width, value);
  if (index < call.in.size()) {
    const HostView& in = call.in[index];
    load_strip(result.data(), in.data, last_step(in), width, in.dtype);
  }
  return result;
}

// The weight of RMSNorm, with what is added to it.
template <class C>
std::vector<C> offset_of(const KernelCall& call, std::size_t index, std::size_t width) {
  std::vector<C> weight = vector_of<C>(call, index, width, 1);
  for (C& one : weight)
    one += static_cast<C>(call.attr.i[0]);
  return weight;
}

template <class C>
void forward(KernelCall& call) {
  const HostView &out = call.out[0], &mean = call.out[1], &rstd = call.out[2], &in = call.in[0];
  const std::size_t width = in.last_size();
  const std::vector<C> weight = vector_of<C>(call, 1, width, 1), bias = vector_of<C>(call, 2, width, 0);
  std::vector<C> x(width);
  for_each_vector<4>({out, mean, rstd, in}, [&](const auto& at) {
    load_strip(x.data(), at[3], last_step(in), width, in.dtype);
    double sum = 0, squares = 0;
    for (const C value : x)
      sum += static_cast<double>(value);
    const double centre = sum / static_cast<double>(width);
    for (const C value : x)
      squares += (static_cast<double>(value) - centre) * (static_cast<double>(value) - centre);
    const C m = static_cast<C>(centre);
    const C r = static_cast<C>(1 / std::sqrt(squares / static_cast<double>(width) + call.attr.x));
    for (std::size_t i = 0; i < width; ++i)
      x[i] = (x[i] - m) * r * weight[i] + bias[i];
    store_strip(at[0], last_step(out), x.data(), width, out.dtype);
    store_strip(at[1], 1, &m, 1, mean.dtype);
    store_strip(at[2], 1, &r, 1, rstd.dtype);
  });
}

// dx = r (g w - mean(g w) - y mean(g w y)), y = (x - m) r; dw = sum g y; db = sum g.
template <class C>
void backward(KernelCall& call) {
  const HostView &out = call.out[0], &gradient = call.in[0], &in = call.in[1];
  const std::size_t width = in.last_size();
  const std::vector<C> weight = vector_of<C>(call, 4, width, 1);
  std::vector<C> g(width), y(width);
  std::vector<double> to_weight(width), to_bias(width);
  for_each_vector<5>({out, gradient, in, call.in[2], call.in[3]}, [&](const auto& at) {
    load_strip(g.data(), at[1], last_step(gradient), width, gradient.dtype);
    load_strip(y.data(), at[2], last_step(in), width, in.dtype);
    C m, r;
    load_strip(&m, at[3], 1, 1, call.in[2].dtype);
    load_strip(&r, at[4], 1, 1, call.in[3].dtype);
    double sum = 0, along = 0;
    for (std::size_t i = 0; i < width; ++i) {
      y[i] = (y[i] - m) * r;
      to_weight[i] += static_cast<double>(g[i]) * static_cast<double>(y[i]);
      to_bias[i] += static_cast<double>(g[i]);
      g[i] *= weight[i];
      sum += static_cast<double>(g[i]);
      along += static_cast<double>(g[i]) * static_cast<double>(y[i]);
    }
    const C mean_g = static_cast<C>(sum / static_cast<double>(width));
    const C mean_gy = static_cast<C>(along / static_cast<double>(width));
    for (std::size_t i = 0; i < width; ++i)
      g[i] = r * (g[i] - mean_g - y[i] * mean_gy);
    store_strip(at[0], last_step(out), g.data(), width, out.dtype);
  });
  if (call.out.size() > 1) generate<double>(call.out[1], [&](std::uint64_t i) { return to_weight[i]; });
  if (call.out.size() > 2) generate<double>(call.out[2], [&](std::uint64_t i) { return to_bias[i]; });
}

// Of in[0], or of in[0] + out[2] in the place of the latter, as it is stored.
template <class C>
void rms_forward(KernelCall& call) {
  const bool adds = call.out.size() > 2;
  const HostView &out = call.out[0], &rstd = call.out[1], &first = call.in[0];
  const HostView& in = adds ? call.out[2] : first;
  const std::size_t width = in.last_size();
  const std::vector<C> weight = offset_of<C>(call, adds ? 2 : 1, width);
  std::vector<C> x(width), added(width);
  for_each_vector<4>({out, rstd, in, first}, [&](const auto& at) {
    load_strip(x.data(), at[2], last_step(in), width, in.dtype);
    if (adds) {
      load_strip(added.data(), at[3], last_step(first), width, first.dtype);
      for (std::size_t i = 0; i < width; ++i)
        x[i] += added[i];
      store_strip(at[2], last_step(in), x.data(), width, in.dtype);
      load_strip(x.data(), at[2], last_step(in), width, in.dtype);
    }
    double squares = 0;
    for (const C value : x)
      squares += static_cast<double>(value) * static_cast<double>(value);
    const C r = static_cast<C>(1 / std::sqrt(squares / static_cast<double>(width) + call.attr.x));
    for (std::size_t i = 0; i < width; ++i)
      x[i] = x[i] * r * weight[i];
    store_strip(at[0], last_step(out), x.data(), width, out.dtype);
    store_strip(at[1], 1, &r, 1, rstd.dtype);
  });
}

// dx = r (g w - y mean(g w y)), y = x r, plus the gradient that came past the norm; dw = sum g y.
template <class C>
void rms_backward(KernelCall& call) {
  const HostView &out = call.out[0], &gradient = call.in[0], &in = call.in[1], &rstd = call.in[2];
  const bool adds = call.in.size() > 4;
  const HostView& past = adds ? call.in[4] : gradient;
  const std::size_t width = in.last_size();
  const std::vector<C> weight = offset_of<C>(call, 3, width);
  std::vector<C> g(width), y(width), added(width);
  std::vector<double> to_weight(width);
  for_each_vector<5>({out, gradient, in, rstd, past}, [&](const auto& at) {
    if (adds) load_strip(added.data(), at[4], last_step(past), width, past.dtype);
    load_strip(g.data(), at[1], last_step(gradient), width, gradient.dtype);
    load_strip(y.data(), at[2], last_step(in), width, in.dtype);
    C r;
    load_strip(&r, at[3], 1, 1, rstd.dtype);
    double along = 0;
    for (std::size_t i = 0; i < width; ++i) {
      y[i] *= r;
      to_weight[i] += static_cast<double>(g[i]) * static_cast<double>(y[i]);
      g[i] *= weight[i];
      along += static_cast<double>(g[i]) * static_cast<double>(y[i]);
    }
    const C mean_gy = static_cast<C>(along / static_cast<double>(width));
    for (std::size_t i = 0; i < width; ++i)
      g[i] = r * (g[i] - y[i] * mean_gy) + added[i];
    store_strip(at[0], last_step(out), g.data(), width, out.dtype);
  });
  if (call.out.size() > 1) generate<double>(call.out[1], [&](std::uint64_t i) { return to_weight[i]; });
}

}  // namespace

void layer_norm(KernelCall& call) {
  (needs_double(call) ? forward<double> : forward<float>)(call);
}

void layer_norm_backward(KernelCall& call) {
  (needs_double(call) ? backward<double> : backward<float>)(call);
}

void rms_norm(KernelCall& call) {
  (needs_double(call) ? rms_forward<double> : rms_forward<float>)(call);
}

void rms_norm_backward(KernelCall& call) {
  (needs_double(call) ? rms_backward<double> : rms_backward<float>)(call);
}

}  // namespace ledger::host
