// kernels_shape.cc - moving elements: joins, padding and table look-ups.
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "probe/host/kernels.h"
#include "probe/host/strided_loop.h"

namespace ledger::host {
namespace {

template <class T>
void move_row(std::byte* to, std::ptrdiff_t to_step, const std::byte* from, std::ptrdiff_t from_step,
              std::size_t count) {
  for (std::size_t i = 0; i < count; ++i, to += to_step, from += from_step)
    std::memcpy(to, from, sizeof(T));
}

void move_row(std::byte* to, std::ptrdiff_t to_step, const std::byte* from, std::ptrdiff_t from_step, std::size_t count,
              Bytes element) {
  const auto packed = static_cast<std::ptrdiff_t>(element);
  if (to_step == packed && from_step == packed) {
    std::memmove(to, from, count * element);
    return;
  }
  switch (element) {
    case 1:
      return move_row<std::uint8_t>(to, to_step, from, from_step, count);
    case 2:
      return move_row<std::uint16_t>(to, to_step, from, from_step, count);
    case 4:
      return move_row<std::uint32_t>(to, to_step, from, from_step, count);
    default:
      return move_row<std::uint64_t>(to, to_step, from, from_step, count);
  }
}

std::int64_t id_at(const std::byte* at) {
  std::int64_t id = 0;
  std::memcpy(&id, at, sizeof id);
  return id;
}

// visit(id, position) for the ids of `tokens` in row-major order; false when one is outside the table.
template <class Visit>
bool for_each_id(const HostView& tokens, std::uint64_t table_rows, Visit visit) {
  std::uint64_t position = 0;
  bool valid = true;
  const StridedLoop<1> loop(tokens, {tokens});
  loop.for_each_row([&](const auto& at, std::size_t row) {
    for (std::size_t i = 0; i < row && valid; ++i) {
      const std::int64_t id = id_at(at[0] + static_cast<std::ptrdiff_t>(i) * loop.steps[0][0]);
      valid = id >= 0 && static_cast<std::uint64_t>(id) < table_rows;
      if (valid) visit(static_cast<std::uint64_t>(id), position++);
    }
  });
  return valid;
}

// Where the rows [...,h] of a view begin, in row-major order of the leading dimensions.
std::vector<std::byte*> row_starts(const HostView& view) {
  HostView leading = view;
  leading.rank = static_cast<std::uint8_t>(view.rank - 1);
  std::vector<std::byte*> starts;
  starts.reserve(leading.numel());
  const StridedLoop<1> loop(leading, {leading});
  loop.for_each_row([&](const auto& at, std::size_t row) {
    for (std::size_t i = 0; i < row; ++i)
      starts.push_back(at[0] + static_cast<std::ptrdiff_t>(i) * loop.steps[0][0]);
  });
  return starts;
}

constexpr const char* kBadId = "a token id lies outside the table";

// Positions are grouped by id so that each row of the table is summed in the compute type and rounded once.
template <class C>
void scatter_add(KernelCall& call) {
  const HostView& gradient = call.in[0];
  const Matrix table = matrix_of(call.out[0]);
  const std::size_t width = table.cols;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> hits;
  if (!for_each_id(call.in[1], table.rows, [&](auto id, auto position) { hits.emplace_back(id, position); })) {
    call.error = kBadId;
    return;
  }
  std::sort(hits.begin(), hits.end());
  const std::vector<std::byte*> rows = row_starts(gradient);
  const std::ptrdiff_t step = gradient.byte_stride(gradient.rank - 1u);
  std::vector<C> total(width), row(width);
  for (std::size_t i = 0; i < hits.size();) {
    const std::uint64_t id = hits[i].first;
    std::fill(total.begin(), total.end(), C{0});
    for (; i < hits.size() && hits[i].first == id; ++i) {
      load_strip(row.data(), rows[hits[i].second], step, width, gradient.dtype);
      for (std::size_t j = 0; j < width; ++j)
        total[j] += row[j];
    }
    store_strip(table.at(id, 0), table.col_stride, total.data(), width, table.dtype);
  }
}

}  // namespace

void move_elements(const HostView& to, const HostView& from) {
  const StridedLoop<2> loop(to, {to, from});
  const Bytes element = element_bytes(to.dtype);
  loop.for_each_row([&](const auto& at, std::size_t row) {
    move_row(at[0], loop.steps[0][0], at[1], loop.steps[0][1], row, element);
  });
}

void cat(KernelCall& call) {
  HostView part = call.out[0];
  const auto dim = static_cast<std::size_t>(call.attr.i[0] < 0 ? call.attr.i[0] + part.rank : call.attr.i[0]);
  std::uint64_t joined = 0;
  for (const HostView& in : call.in) {
    part.sizes[dim] = in.sizes[dim];
    joined += in.sizes[dim];
    if (joined > call.out[0].sizes[dim] || in.dtype != part.dtype || !broadcasts_to(in, part)) {
      call.error = "an input does not fit its part of the output";
      return;
    }
    move_elements(part, in);
    part.data += static_cast<std::ptrdiff_t>(in.sizes[dim]) * part.byte_stride(dim);
  }
}

void pad_right(KernelCall& call) {
  const std::size_t last = call.out[0].rank - 1u;
  HostView kept = call.out[0];
  HostView padding = call.out[0];
  kept.sizes[last] = call.in[0].sizes[last];
  padding.sizes[last] -= kept.sizes[last];
  padding.data += static_cast<std::ptrdiff_t>(kept.sizes[last]) * kept.byte_stride(last);
  move_elements(kept, call.in[0]);
  generate<double>(padding, [&](std::uint64_t) { return static_cast<double>(call.attr.i[0]); });
}

void stack(KernelCall& call) {
  const HostView& out = call.out[0];
  for (std::size_t i = 0; i < call.in.size(); ++i) {
    std::byte* to = out.data + static_cast<std::ptrdiff_t>(i) * out.byte_stride(0);
    store_one(to, load_one<double>(call.in[i].data, call.in[i].dtype), out.dtype);
  }
}

void embedding(KernelCall& call) {
  const Matrix table = matrix_of(call.in[0]);
  const HostView& out = call.out[0];
  const std::ptrdiff_t out_step = out.byte_stride(out.rank - 1u);
  const std::vector<std::byte*> rows = row_starts(out);
  const bool valid = for_each_id(call.in[1], table.rows, [&](std::uint64_t id, std::uint64_t position) {
    move_row(rows[position], out_step, table.at(id, 0), table.col_stride, table.cols, element_bytes(out.dtype));
  });
  if (!valid) call.error = kBadId;
}

void embedding_backward(KernelCall& call) {
  generate<float>(call.out[0], [](std::uint64_t) { return 0.0f; });
  if (call.out[0].dtype == DType::f64) {
    scatter_add<double>(call);
  } else {
    scatter_add<float>(call);
  }
}

}  // namespace ledger::host
