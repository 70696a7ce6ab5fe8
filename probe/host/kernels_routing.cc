// kernels_routing.cc - choosing experts for tokens, sorting tokens by expert, and products group by group.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "probe/host/gemm.h"
#include "probe/host/kernels.h"
#include "probe/host/strided_loop.h"
#include "probe/math/experts.h"

namespace ledger::host {
namespace {

constexpr const char* kBadIndex = "an index lies outside the rows";

std::byte* element(const HostView& view, std::uint64_t row, std::uint64_t column) {
  return view.data + static_cast<std::ptrdiff_t>(row) * view.byte_stride(0) +
         static_cast<std::ptrdiff_t>(column) * view.byte_stride(1);
}

void store_int(const HostView& view, std::uint64_t i, std::int64_t value) {
  std::memcpy(view.data + static_cast<std::ptrdiff_t>(i) * view.byte_stride(0), &value, sizeof value);
}

// out[i] = f(in[i]) on int64.
template <class F>
void map_ints(KernelCall& call, F f) {
  const HostView &in = call.in[0], &out = call.out[0];
  for (std::uint64_t i = 0; i < in.sizes[0]; ++i)
    store_one(out.data + static_cast<std::ptrdiff_t>(i) * out.byte_stride(0), static_cast<double>(f(int_at(in, i))),
              out.dtype);
}

// visit(first row, how many) of every group; the ends are int32.
template <class Visit>
void for_each_group(const HostView& ends, Visit visit) {
  std::uint64_t first = 0;
  for (std::uint64_t group = 0; group < ends.sizes[0]; ++group) {
    std::int32_t end = 0;
    std::memcpy(&end, ends.data + static_cast<std::ptrdiff_t>(group) * ends.byte_stride(0), sizeof end);
    visit(group, first, static_cast<std::uint64_t>(end) - first);
    first = static_cast<std::uint64_t>(end);
  }
}

// `count` rows of `m` from `first` on; columns of a matrix are the rows of its transpose.
Matrix rows_of(Matrix m, std::uint64_t first, std::uint64_t count) {
  m.data = m.at(first, 0);
  m.rows = count;
  return m;
}

Matrix columns_of(Matrix m, std::uint64_t first, std::uint64_t count) {
  m.data = m.at(0, first);
  m.cols = count;
  return m;
}

template <class C>
void grouped_product(KernelCall& call) {
  const HostView &a = call.in[0], &b = call.in[1], &out = call.out[0];
  const bool by_rows = b.rank == 3;
  for_each_group(call.in[2], [&](std::uint64_t group, std::uint64_t first, std::uint64_t count) {
    if (by_rows) {
      if (count != 0)
        multiply<C>(rows_of(matrix_of(a), first, count), matrix_of(b, group), rows_of(matrix_of(out), first, count));
      return;
    }
    const Matrix product = matrix_of(out, group);
    if (count != 0)
      return multiply<C>(columns_of(matrix_of(a), first, count), rows_of(matrix_of(b), first, count), product);
    HostView none = out;
    none.data = product.data;
    none.sizes[0] = 1;
    generate<float>(none, [](std::uint64_t) { return 0.0f; });
  });
}

}  // namespace

void topk(KernelCall& call) {
  const HostView &in = call.in[0], &values = call.out[0], &places = call.out[1];
  const std::size_t width = in.sizes[1], wanted = values.sizes[1];
  std::vector<double> row(width);
  std::vector<std::size_t> order(width);
  for (std::uint64_t t = 0; t < in.sizes[0]; ++t) {
    load_strip(row.data(), element(in, t, 0), in.byte_stride(1), width, in.dtype);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t x, std::size_t y) { return row[x] > row[y]; });
    for (std::size_t j = 0; j < wanted; ++j) {
      store_one(element(values, t, j), row[order[j]], values.dtype);
      store_one(element(places, t, j), static_cast<double>(order[j]), places.dtype);
    }
  }
}

namespace {

// visit(row, column, the place of `places` there) for all, while they lie below `limit`.
template <class Visit>
void for_each_place(KernelCall& call, const HostView& places, std::uint64_t limit, Visit visit) {
  for (std::uint64_t t = 0; t < places.sizes[0]; ++t) {
    for (std::uint64_t j = 0; j < places.sizes[1]; ++j) {
      const auto place = static_cast<std::uint64_t>(load_one<double>(element(places, t, j), places.dtype));
      if (place >= limit) {
        call.error = kBadIndex;
        return;
      }
      visit(t, j, place);
    }
  }
}

}  // namespace

void topk_backward(KernelCall& call) {
  generate<float>(call.out[0], [](std::uint64_t) { return 0.0f; });
  scatter_source(call);
}

void gather(KernelCall& call) {
  const HostView &in = call.in[0], &out = call.out[0];
  for_each_place(call, call.in[1], in.sizes[1], [&](std::uint64_t t, std::uint64_t j, std::uint64_t place) {
    store_one(element(out, t, j), load_one<double>(element(in, t, place), in.dtype), out.dtype);
  });
}

void scatter_source(KernelCall& call) {
  const HostView &source = call.in[0], &out = call.out[0];
  for_each_place(call, call.in[1], out.sizes[1], [&](std::uint64_t t, std::uint64_t j, std::uint64_t place) {
    store_one(element(out, t, place), load_one<double>(element(source, t, j), source.dtype), out.dtype);
  });
}

void scatter_value(KernelCall& call) {
  const HostView& out = call.out[0];
  for_each_place(call, call.in[0], out.sizes[1], [&](std::uint64_t t, std::uint64_t, std::uint64_t place) {
    store_one(element(out, t, place), call.attr.x, out.dtype);
  });
}

void sort(KernelCall& call) {
  const HostView& in = call.in[0];
  std::vector<std::int64_t> order(in.sizes[0]);
  std::iota(order.begin(), order.end(), std::int64_t{0});
  const auto value = [&](std::int64_t i) { return int_at(in, static_cast<std::uint64_t>(i)); };
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t x, std::int64_t y) { return value(x) < value(y); });
  for (std::uint64_t i = 0; i < order.size(); ++i) {
    store_int(call.out[0], i, value(order[static_cast<std::size_t>(i)]));
    store_int(call.out[1], i, order[static_cast<std::size_t>(i)]);
  }
}

void floor_divide(KernelCall& call) {
  map_ints(call, [&](std::int64_t x) { return x / call.attr.i[0]; });  // places: never negative
}

void remainder(KernelCall& call) {
  map_ints(call, [&](std::int64_t x) { return x % call.attr.i[0]; });
}

void experts_in_turn(KernelCall& call) {
  const math::ExpertsInTurn turn(call.attr, call.out[0].last_size());
  generate<double>(call.out[0], [&](std::uint64_t i) { return turn(i); });
}

void at_least(KernelCall& call) {
  map_ints(call, [&](std::int64_t x) { return x >= call.attr.i[0]; });
}

void less(KernelCall& call) {
  map_ints(call, [&](std::int64_t x) { return x < call.attr.i[0]; });
}

void histc(KernelCall& call) {
  const HostView &in = call.in[0], &out = call.out[0];
  std::vector<double> counts(out.sizes[0], 0.0);
  for (std::uint64_t i = 0; i < in.sizes[0]; ++i) {
    const double x = load_one<double>(in.data + static_cast<std::ptrdiff_t>(i) * in.byte_stride(0), in.dtype);
    if (x >= 0 && x < static_cast<double>(counts.size())) ++counts[static_cast<std::size_t>(x)];
  }
  generate<double>(out, [&](std::uint64_t i) { return counts[i]; });
}

void grouped_mm(KernelCall& call) {
  // Not needs_double(): the groups' ends are integers.
  (call.in[0].dtype == DType::f64 ? grouped_product<double> : grouped_product<float>)(call);
}

}  // namespace ledger::host
