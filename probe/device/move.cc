// move.cc - moving elements: joins, padding, look-ups in tables, and host memory.
#include "probe/device/kernels.h"
#include "probe/device/memory.h"

namespace ledger::LEDGER_DEVICE {
namespace {

template <class T>
struct Move {
  Strips<2> strips;  // to, from

  LEDGER_DEVICE_ONLY void operator()(std::uint64_t strip) const {
    const auto p = strips.place(strip);
    const std::int64_t to = strips.walk.steps[0][0], from = strips.walk.steps[0][1];
    if (packed<T>(p.at[0], to, p.count) && packed<T>(p.at[1], from, p.count)) {
      *reinterpret_cast<Packed<T>*>(p.at[0]) = *reinterpret_cast<const Packed<T>*>(p.at[1]);
      return;
    }
    LEDGER_UNROLL
    for (unsigned i = 0; i < kStrip; ++i) {
      if (i < p.count) *reinterpret_cast<T*>(p.at[0] + i * to) = *reinterpret_cast<const T*>(p.at[1] + i * from);
    }
  }
};

// The row of a table that an id names, for every position; or the other way, into the table.
struct TakeRows {
  Walk<2> leading;  // of the result's rows and the ids
  std::int64_t to_step, row_step, column_step;
  std::byte* table;
  std::uint64_t rows, width;
  DType dtype;
  std::int32_t* fault;
  device::Fault kind;
  bool into_table;

  LEDGER_DEVICE_ONLY void operator()(Team& team, std::uint64_t position) const {
    std::byte* at[2];
    leading.locate(position, at);
    const std::int64_t id = *reinterpret_cast<const std::int64_t*>(at[1]);
    if (!inside(id, rows, fault, kind)) return;
    std::byte *row = table + id * row_step, *listed = at[0];
    with_type<double>(dtype, [&]<class T>(T) {
      team.for_each(width, [&](std::uint64_t i) {
        T& in_table = *reinterpret_cast<T*>(row + static_cast<std::int64_t>(i) * column_step);
        T& in_list = *reinterpret_cast<T*>(listed + static_cast<std::int64_t>(i) * to_step);
        if (into_table) {
          in_table = in_list;
        } else {
          in_list = in_table;
        }
      });
    });
  }
};

// table[id] = sum of the rows listed under that id, in order, rounded once. The first place of an id does it all; the
// others find that they are not the first. No atomics, so that runs repeat to the bit.
template <class C>
struct AddRows {
  Rows<1> listed;
  Walk<1> ids;
  std::uint64_t count;
  std::byte* table;
  std::int64_t row_step, column_step;
  std::uint64_t rows;
  DType dtype;
  std::int32_t* fault;
  device::Fault kind;

  LEDGER_DEVICE_ONLY std::int64_t id(std::uint64_t i) const {
    std::byte* at[1];
    ids.locate(i, at);
    return *reinterpret_cast<const std::int64_t*>(at[0]);
  }
  LEDGER_DEVICE_ONLY void operator()(Team& team, std::uint64_t position) const {
    const std::int64_t mine = id(position);
    if (!inside(mine, rows, fault, kind)) return;
    const std::uint64_t earlier =
        team.sum<std::uint64_t>(position, [&](std::uint64_t i) { return std::uint64_t{id(i) == mine}; });
    if (earlier > 0) return;
    team.for_each(listed.width, [&](std::uint64_t column) {
      C total = 0;
      for (std::uint64_t i = position; i < count; ++i) {
        if (id(i) != mine) continue;
        std::byte* at[1];
        listed.leading.locate(i, at);
        total += listed.template get<C>(at, 0, column);
      }
      store(table + mine * row_step + static_cast<std::int64_t>(column) * column_step, total, dtype);
    });
  }
};

struct OneElement {
  std::byte* to;
  const std::byte* from;
  DType to_dtype, from_dtype;
  LEDGER_DEVICE_ONLY void operator()(std::uint64_t) const { store(to, load<double>(from, from_dtype), to_dtype); }
};

struct Padding {
  double value;
  LEDGER_DEVICE_ONLY double operator()(std::uint64_t) const { return value; }
};

// All but the last dimension, and the whole of ids beside it.
Operand without_last(Operand view) {
  view.rank = static_cast<std::uint8_t>(view.rank - 1);
  return view;
}

// Rows of any rank as rows of a matrix [n, width]; the dimensions behind the first lie side by side.
bool as_matrix(const Operand& view, Operand& matrix) {
  matrix = view;
  std::int64_t dense = 1;
  for (std::size_t i = view.rank; i-- > 1;) {
    if (view.sizes[i] != 1 && view.strides[i] != dense) return view.rank <= 2;
    dense *= static_cast<std::int64_t>(view.sizes[i]);
  }
  matrix.rank = 2;
  matrix.sizes[1] = static_cast<std::uint64_t>(dense);
  matrix.strides[1] = 1;
  return true;
}

void take_rows(Call& call, const Operand& out, const Operand& table, const Operand& ids, device::Fault kind,
               bool into_table = false) {
  const Operand rows = without_last(out);
  for_teams(call, rows.numel(),
            TakeRows{Walk<2>(rows, {rows, ids}), host::last_step(out), table.byte_stride(0), table.byte_stride(1),
                     table.data, table.sizes[0], table.sizes[1], out.dtype, call.services.fault, kind, into_table});
}

template <class C>
void add_rows_as(Call& call, const Operand& table, const Operand& listed, const Operand& ids, device::Fault kind) {
  const std::uint64_t count = ids.numel();
  for_teams(call, count,
            AddRows<C>{Rows<1>({listed}), Walk<1>(ids, {ids}), count, table.data, table.byte_stride(0),
                       table.byte_stride(1), table.sizes[0], table.dtype, call.services.fault, kind});
}

void add_rows(Call& call, const Operand& table, const Operand& listed, const Operand& ids, device::Fault kind) {
  fill_zeros(call);
  if (table.dtype == DType::f64) return add_rows_as<double>(call, table, listed, ids, kind);
  add_rows_as<float>(call, table, listed, ids, kind);
}

constexpr const char* kScatteredRows = "rows that do not lie side by side in memory cannot be taken by index here";

}  // namespace

void move_elements(Call& call, const Operand& to, const Operand& from) {
  const Strips<2> strips(to, {to, from});
  switch (element_bytes(to.dtype)) {
    case 1:
      return for_elements(call, strips.count(), Move<std::uint8_t>{strips});
    case 2:
      return for_elements(call, strips.count(), Move<std::uint16_t>{strips});
    case 4:
      return for_elements(call, strips.count(), Move<std::uint32_t>{strips});
    default:
      return for_elements(call, strips.count(), Move<std::uint64_t>{strips});
  }
}

void cat(Call& call) {
  Operand part = call.out[0];
  const auto dim = static_cast<std::size_t>(call.attr.i[0] < 0 ? call.attr.i[0] + part.rank : call.attr.i[0]);
  std::uint64_t joined = 0;
  for (const Operand& in : call.in) {
    part.sizes[dim] = in.sizes[dim];
    joined += in.sizes[dim];
    if (joined > call.out[0].sizes[dim] || in.dtype != part.dtype || !host::broadcasts_to(in, part)) {
      call.error = "an input does not fit its part of the output";
      return;
    }
    move_elements(call, part, in);
    part.data += static_cast<std::ptrdiff_t>(in.sizes[dim]) * part.byte_stride(dim);
  }
}

void pad_right(Call& call) {
  const std::size_t last = call.out[0].rank - 1u;
  Operand kept = call.out[0], padding = call.out[0];
  kept.sizes[last] = call.in[0].sizes[last];
  padding.sizes[last] -= kept.sizes[last];
  padding.data += static_cast<std::ptrdiff_t>(kept.sizes[last]) * kept.byte_stride(last);
  move_elements(call, kept, call.in[0]);
  generate<double>(call, padding, Padding{static_cast<double>(call.attr.i[0])});
}

void stack(Call& call) {
  const Operand& out = call.out[0];
  for (std::size_t i = 0; i < call.in.size(); ++i) {
    std::byte* to = out.data + static_cast<std::ptrdiff_t>(i) * out.byte_stride(0);
    for_elements(call, 1, OneElement{to, call.in[i].data, out.dtype, call.in[i].dtype});
  }
}

void embedding(Call& call) {
  take_rows(call, call.out[0], call.in[0], call.in[1], device::kBadToken);
}

void embedding_backward(Call& call) {
  add_rows(call, call.out[0], call.in[0], call.in[1], device::kBadToken);
}

namespace {

// out0 and in0 as matrices of rows; false, and said, where their rows are scattered.
bool as_matrices(Call& call, Operand& out, Operand& in) {
  if (!as_matrix(call.out[0], out) || !as_matrix(call.in[0], in)) {
    call.error = kScatteredRows;
    return false;
  }
  if (out.rank == 1) {
    out.rank = in.rank = 2;
    out.sizes[1] = in.sizes[1] = 1;
  }
  return true;
}

}  // namespace

void index_rows(Call& call) {
  Operand out, in;
  if (as_matrices(call, out, in)) take_rows(call, out, in, call.in[1], device::kBadIndex);
}

void index_rows_backward(Call& call) {
  Operand out, in;
  if (as_matrices(call, out, in)) add_rows(call, out, in, call.in[1], device::kBadIndex);
}

void index_put(Call& call) {
  Operand out, in;
  if (as_matrices(call, out, in)) take_rows(call, in, out, call.in[1], device::kBadIndex, true);
}

namespace {

// Every element finds its own place by counting those before it: n^2 reads of a few thousand flags from cache.
struct SortTrueFirst {
  Operand keys, sorted, indices;

  LEDGER_DEVICE_ONLY bool key(std::uint64_t i, std::int64_t step) const {
    return load<float>(keys.data + static_cast<std::int64_t>(i) * step, keys.dtype) != 0;
  }
  std::int64_t key_step, sorted_step, index_step;
  LEDGER_DEVICE_ONLY void operator()(Team& team, std::uint64_t i) const {
    const bool mine = key(i, key_step);
    const std::uint64_t before =
        team.sum<std::uint64_t>(i, [&](std::uint64_t j) { return std::uint64_t{key(j, key_step) == mine}; });
    const std::uint64_t trues =
        mine ? 0
             : team.sum<std::uint64_t>(keys.sizes[0], [&](std::uint64_t j) { return std::uint64_t{key(j, key_step)}; });
    team.each([&](unsigned lane) {
      if (lane != 0) return;
      const auto place = static_cast<std::int64_t>(before + trues);
      store(sorted.data + place * sorted_step, mine ? 1.0f : 0.0f, sorted.dtype);
      *reinterpret_cast<std::int64_t*>(indices.data + place * index_step) = static_cast<std::int64_t>(i);
    });
  }
};

// The places of labels that count, in order.
struct CutPositions {
  Operand labels, out;
  std::int64_t row_step, column_step, out_step;
  std::int32_t* fault;

  LEDGER_DEVICE_ONLY bool counts(std::uint64_t t) const {
    const std::uint64_t width = labels.sizes[1], row = t / width, next = t - row * width + 1;
    if (next == width) return false;
    const std::byte* at =
        labels.data + static_cast<std::int64_t>(row) * row_step + static_cast<std::int64_t>(next) * column_step;
    return *reinterpret_cast<const std::int64_t*>(at) != kIgnoreIndex;
  }
  LEDGER_DEVICE_ONLY void operator()(Team& team, std::uint64_t t) const {
    const bool mine = counts(t), last = t + 1 == labels.sizes[0] * labels.sizes[1];
    if (!mine && !last) return;
    const std::uint64_t before = team.sum<std::uint64_t>(t, [&](std::uint64_t j) { return std::uint64_t{counts(j)}; });
    team.each([&](unsigned lane) {
      if (lane != 0) return;
      if (before + mine > out.sizes[0] || (last && before + mine != out.sizes[0])) {
        *fault = device::kBadPosition;
      } else if (mine) {
        *reinterpret_cast<std::int64_t*>(out.data + static_cast<std::int64_t>(before) * out_step) =
            static_cast<std::int64_t>(t);
      }
    });
  }
};

}  // namespace

void sort_true_first(Call& call) {
  const Operand &keys = call.in[0], &sorted = call.out[0], &indices = call.out[1];
  for_teams(call, keys.sizes[0],
            SortTrueFirst{keys, sorted, indices, keys.byte_stride(0), sorted.byte_stride(0), indices.byte_stride(0)});
}

void cut_positions(Call& call) {
  const Operand &labels = call.in[0], &out = call.out[0];
  for_teams(
      call, labels.numel(),
      CutPositions{labels, out, labels.byte_stride(0), labels.byte_stride(1), out.byte_stride(0), call.services.fault});
}

// Host memory that the device writes and reads itself: no copy of a strided tensor is made on the way.
void copy_to_host(Call& call) {
  const Operand& in = call.in[0];
  std::byte* memory = call.services.host_side->keep(call.attr.i[0], in.numel() * element_bytes(in.dtype));
  if (memory == nullptr) {
    call.error = "the host has no memory left for what is put aside";
    return;
  }
  move_elements(call, host::dense_view(in, memory, in.dtype), in);
}

void copy_from_host(Call& call) {
  const Operand& out = call.out[0];
  std::byte* memory = call.services.host_side->find(call.attr.i[0], out.numel() * element_bytes(out.dtype));
  if (memory == nullptr) {
    call.error = "host memory holds no tensor of this number and size";
    return;
  }
  move_elements(call, out, host::dense_view(out, memory, out.dtype));
  call.services.host_side->drop(call.attr.i[0]);
}

}  // namespace ledger::LEDGER_DEVICE
