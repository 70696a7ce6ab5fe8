// kernels_reduce.cc - sums over dimensions. Always accumulated in double: nearer to the true value than any order of
// fp32 additions, so that comparisons with a GPU measure the GPU's rounding only.
#include <array>
#include <cmath>
#include <vector>

#include "probe/host/kernels.h"
#include "probe/host/strided_loop.h"

namespace ledger::host {
namespace {

void add_into(const HostView& totals, const HostView& in) {
  std::array<double, kStrip> strip;
  const StridedLoop<2> loop(in, {in, totals});
  const auto [in_step, total_step] = loop.steps[0];
  loop.for_each_row([&, in_step = in_step, total_step = total_step](const auto& at, std::size_t row) {
    in_strips(row, [&](std::size_t first, std::size_t count) {
      const auto offset = static_cast<std::ptrdiff_t>(first);
      load_strip(strip.data(), at[0] + offset * in_step, in_step, count, in.dtype);
      std::byte* total = at[1] + offset * total_step;
      for (std::size_t i = 0; i < count; ++i, total += total_step)
        *reinterpret_cast<double*>(total) += strip[i];
    });
  });
}

// The sum of in0 in out0's shape, times `factor`.
void reduce(KernelCall& call, double factor) {
  const HostView& out = call.out[0];
  if (!broadcasts_to(out, call.in[0])) {
    call.error = "the output's shape is no reduction of the input's";
    return;
  }
  std::vector<double> totals(out.numel(), 0.0);
  add_into(dense_view(out, reinterpret_cast<std::byte*>(totals.data()), DType::f64), call.in[0]);
  generate<double>(out, [&](std::uint64_t i) { return totals[i] * factor; });
}

double norm(const HostView& in) {
  std::array<double, kStrip> strip;
  double squares = 0;
  const StridedLoop<1> loop(in, {in});
  const std::ptrdiff_t step = loop.steps[0][0];
  loop.for_each_row([&](const auto& at, std::size_t row) {
    in_strips(row, [&](std::size_t first, std::size_t count) {
      load_strip(strip.data(), at[0] + static_cast<std::ptrdiff_t>(first) * step, step, count, in.dtype);
      for (std::size_t i = 0; i < count; ++i)
        squares += strip[i] * strip[i];
    });
  });
  return std::sqrt(squares);
}

}  // namespace

void sum(KernelCall& call) {
  reduce(call, 1);
}

void mean(KernelCall& call) {
  const std::uint64_t outputs = call.out[0].numel();
  reduce(call, static_cast<double>(outputs) / static_cast<double>(call.in[0].numel()));
}

void cumsum(KernelCall& call) {
  const HostView &out = call.out[0], &in = call.in[0];
  const std::size_t width = in.last_size();
  for_each_vector<2>({out, in}, [&](const auto& at) {
    double total = 0;
    for (std::size_t i = 0; i < width; ++i) {
      const auto place = static_cast<std::ptrdiff_t>(i);
      total += load_one<double>(at[1] + place * last_step(in), in.dtype);
      store_one(at[0] + place * last_step(out), total, out.dtype);
    }
  });
}

void argmax(KernelCall& call) {
  HostView places = call.out[0];  // one column at every row of the input
  const HostView& in = call.in[0];
  places.sizes[places.rank] = 1;
  places.strides[places.rank++] = 0;
  const std::size_t width = in.last_size();
  places.sizes = in.sizes;
  for_each_vector<2>({places, in}, [&](const auto& at) {
    std::size_t best = 0;
    double largest = load_one<double>(at[1], in.dtype);
    for (std::size_t i = 1; i < width; ++i) {
      const double value = load_one<double>(at[1] + static_cast<std::ptrdiff_t>(i) * last_step(in), in.dtype);
      if (value > largest) {
        largest = value;
        best = i;
      }
    }
    store_one(at[0], static_cast<double>(best), places.dtype);
  });
}

void amax(KernelCall& call) {
  const HostView &out = call.out[0], &in = call.in[0];
  const std::size_t width = in.last_size();
  for_each_vector<2>({out, in}, [&](const auto& at) {
    double largest = load_one<double>(at[1], in.dtype);
    for (std::size_t i = 1; i < width; ++i)
      largest = std::max(largest, load_one<double>(at[1] + static_cast<std::ptrdiff_t>(i) * last_step(in), in.dtype));
    store_one(at[0], largest, out.dtype);
  });
}

void vector_norm(KernelCall& call) {
  store_one(call.out[0].data, norm(call.in[0]), call.out[0].dtype);
}

void row_norm(KernelCall& call) {
  const HostView& out = call.out[0];
  HostView row = call.in[0];
  row.rank = 1;
  row.sizes[0] = call.in[0].sizes[1];
  row.strides[0] = call.in[0].strides[1];
  for (std::uint64_t i = 0; i < out.sizes[0]; ++i) {
    store_one(out.data + static_cast<std::ptrdiff_t>(i) * out.byte_stride(0), norm(row), out.dtype);
    row.data += call.in[0].byte_stride(0);
  }
}

}  // namespace ledger::host
