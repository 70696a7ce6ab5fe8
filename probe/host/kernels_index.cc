// kernels_index.cc - rows taken and put back by index, and the order they are taken in.
#include <cstring>

#include "probe/host/kernels.h"
#include "probe/host/strided_loop.h"

namespace ledger::host {
namespace {

constexpr const char* kBadIndex = "an index lies outside the rows";

// Row i of a tensor of any rank.
HostView row_of(const HostView& view, std::uint64_t i) {
  HostView row = view;
  row.data += static_cast<std::ptrdiff_t>(i) * view.byte_stride(0);
  row.sizes[0] = 1;
  return row;
}

// visit(row i of `listed`, the row of `indexed` that index i names)
template <class Visit>
void for_each_index(KernelCall& call, const HostView& listed, const HostView& indexed, Visit visit) {
  const HostView& indices = call.in[1];
  for (std::uint64_t i = 0; i < indices.sizes[0]; ++i) {
    const std::optional<std::uint64_t> index = index_at(indices, i, indexed.sizes[0]);
    if (!index) {
      call.error = kBadIndex;
      return;
    }
    visit(row_of(listed, i), row_of(indexed, *index));
  }
}

// to += from, in double.
void add_row(const HostView& to, const HostView& from) {
  const StridedLoop<2> loop(to, {to, from});
  loop.for_each_row([&](auto at, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i, at[0] += loop.steps[0][0], at[1] += loop.steps[0][1])
      store_one(at[0], load_one<double>(at[0], to.dtype) + load_one<double>(at[1], from.dtype), to.dtype);
  });
}

}  // namespace

void not_equal(KernelCall& call) {  // and equal
  const HostView &out = call.out[0], &in = call.in[0];
  const bool wanted = call.run.op == OpKind::equal;
  const StridedLoop<2> loop(out, {out, in});
  loop.for_each_row([&](auto at, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i, at[0] += loop.steps[0][0], at[1] += loop.steps[0][1]) {
      std::int64_t value = 0;
      std::memcpy(&value, at[1], sizeof value);
      store_one(at[0], (value == call.attr.i[0]) == wanted ? 1.0 : 0.0, out.dtype);
    }
  });
}

void sort_true_first(KernelCall& call) {
  const HostView &keys = call.in[0], &sorted = call.out[0], &indices = call.out[1];
  const std::uint64_t count = keys.sizes[0];
  std::uint64_t next = 0;
  for (const bool wanted : {true, false}) {
    for (std::uint64_t i = 0; i < count; ++i) {
      const auto at = static_cast<std::ptrdiff_t>(i);
      if ((load_one<double>(keys.data + at * keys.byte_stride(0), keys.dtype) != 0) != wanted) continue;
      const auto to = static_cast<std::ptrdiff_t>(next++);
      store_one(sorted.data + to * sorted.byte_stride(0), wanted ? 1.0 : 0.0, sorted.dtype);
      const auto index = static_cast<std::int64_t>(i);
      std::memcpy(indices.data + to * indices.byte_stride(0), &index, sizeof index);
    }
  }
}

void index_rows(KernelCall& call) {
  for_each_index(call, call.out[0], call.in[0],
                 [](const HostView& listed, const HostView& indexed) { move_elements(listed, indexed); });
}

void index_put(KernelCall& call) {
  for_each_index(call, call.in[0], call.out[0],
                 [](const HostView& listed, const HostView& indexed) { move_elements(indexed, listed); });
}

void index_rows_backward(KernelCall& call) {
  generate<float>(call.out[0], [](std::uint64_t) { return 0.0f; });
  for_each_index(call, call.in[0], call.out[0],
                 [](const HostView& listed, const HostView& indexed) { add_row(indexed, listed); });
}

}  // namespace ledger::host
