// reduce.cc - sums over dimensions, norms, and what goes along a row. Accumulated in the compute type by lanes, lanes
// by pairs; the order is fixed, so that runs repeat to the bit.
#include <cmath>

#include "probe/device/kernels.h"
#include "probe/device/memory.h"

namespace ledger::LEDGER_DEVICE {
namespace {

// Elements of one operand by index, dimensions merged.
struct Elements {
  Walk<1> walk;
  DType dtype;
  std::uint64_t count;

  Elements(const Operand& view) : walk(view, {view}), dtype(view.dtype), count(walk.count()) {}  // NOLINT

  template <class C>
  LEDGER_DEVICE_ONLY C get(std::uint64_t i, std::int64_t offset = 0) const {
    std::byte* at[1];
    walk.locate(i, at);
    return load<C>(at[0] + offset, dtype);
  }
};

// What is kept of in0's dimensions, beside out0, and what is summed for each of these.
struct Reduction {
  Walk<2> kept;  // first element of what is summed, result
  Elements summed;
  DType result;
  bool along_last;  // the innermost dimension is summed

  static Operand without(const Operand& in, const Operand& out, bool reduced) {
    Operand part = in;
    for (std::size_t i = 0; i < in.rank; ++i) {
      const std::size_t from_last = in.rank - 1u - i;
      const bool sums = from_last >= out.rank || out.sizes[out.rank - 1u - from_last] == 1;
      if (sums == reduced) part.sizes[i] = 1;
    }
    return part;
  }
  Reduction(const Operand& in, const Operand& out)
      : kept(without(in, out, true), {without(in, out, true), out}),
        summed(without(in, out, false)),
        result(out.dtype),
        along_last(in.rank > 0 && in.sizes[in.rank - 1u] > 1 && without(in, out, false).sizes[in.rank - 1u] > 1) {}
};

template <class C>
struct SumByTeam {
  Reduction r;
  double factor;

  LEDGER_DEVICE_ONLY void operator()(Team& team, std::uint64_t i) const {
    std::byte* at[2];
    r.kept.locate(i, at);
    const std::int64_t offset = at[0] - r.summed.walk.data[0];
    const C total = team.sum<C>(r.summed.count, [&](std::uint64_t j) { return r.summed.template get<C>(j, offset); });
    team.each([&](unsigned lane) {
      if (lane == 0) store(at[1], total * static_cast<C>(factor), r.result);
    });
  }
};

// A thread a result: neighbours read neighbours.
template <class C>
struct SumByElement {
  Reduction r;
  double factor;

  LEDGER_DEVICE_ONLY void operator()(std::uint64_t i) const {
    std::byte* at[2];
    r.kept.locate(i, at);
    const std::int64_t offset = at[0] - r.summed.walk.data[0];
    C total = 0;
    for (std::uint64_t j = 0; j < r.summed.count; ++j)
      total += r.summed.template get<C>(j, offset);
    store(at[1], total * static_cast<C>(factor), r.result);
  }
};

// Parts of a sum over a whole tensor go to scratch memory: part(i) is the sum of f over every kTeams-th run of
// elements.
constexpr std::uint64_t kPartSize = 16384;

std::uint64_t parts_of(std::uint64_t count) {
  return std::min(device::kScratch, divide_up(count, kPartSize));
}

template <class C>
struct PartialSum {
  Elements elements;
  std::uint64_t parts;
  bool squares;
  double* scratch;

  LEDGER_DEVICE_ONLY void operator()(Team& team, std::uint64_t part) const {
    const std::uint64_t size = (elements.count + parts - 1) / parts, first = part * size;
    const std::uint64_t rest = first < elements.count ? elements.count - first : 0;
    const C total = team.sum<C>(rest < size ? rest : size, [&](std::uint64_t j) {
      const C x = elements.template get<C>(first + j);
      return squares ? x * x : x;
    });
    team.each([&](unsigned lane) {
      if (lane == 0) scratch[part] = static_cast<double>(total);
    });
  }
};

struct SumOfParts {
  const double* scratch;
  std::uint64_t parts;
  double factor;
  bool root;
  std::byte* to;
  DType dtype;

  LEDGER_DEVICE_ONLY void operator()(Team& team, std::uint64_t) const {
    const double total = team.sum<double>(parts, [&](std::uint64_t j) { return scratch[j]; }) * factor;
    team.each([&](unsigned lane) {
      if (lane == 0) store(to, root ? std::sqrt(total) : total, dtype);
    });
  }
};

void sum_everything(Call& call, const Operand& in, std::byte* to, DType dtype, double factor, bool norm) {
  const Elements elements(in);
  const std::uint64_t parts = parts_of(elements.count);
  if (in.dtype == DType::f64 || !info(in.dtype).floating) {
    for_teams(call, parts, PartialSum<double>{elements, parts, norm, call.services.scratch});
  } else {
    for_teams(call, parts, PartialSum<float>{elements, parts, norm, call.services.scratch});
  }
  for_teams(call, 1, SumOfParts{call.services.scratch, parts, factor, norm, to, dtype});
}

template <class C>
void sum_as(Call& call, const Reduction& r, double factor) {
  if (r.along_last && r.summed.count >= kWarp) {
    for_teams(call, r.kept.count(), SumByTeam<C>{r, factor});
  } else {
    for_elements(call, r.kept.count(), SumByElement<C>{r, factor});
  }
}

void reduce(Call& call, double factor) {
  const Operand &out = call.out[0], &in = call.in[0];
  if (!host::broadcasts_to(out, in)) {
    call.error = "the output's shape is no reduction of the input's";
    return;
  }
  if (out.numel() == 1) return sum_everything(call, in, out.data, out.dtype, factor, false);
  const Reduction r(in, out);
  needs_double(call) ? sum_as<double>(call, r, factor) : sum_as<float>(call, r, factor);
}

}  // namespace

void sum(Call& call) {
  reduce(call, 1);
}

void mean(Call& call) {
  reduce(call, static_cast<double>(call.out[0].numel()) / static_cast<double>(call.in[0].numel()));
}

void vector_norm(Call& call) {
  sum_everything(call, call.in[0], call.out[0].data, call.out[0].dtype, 1, true);
}

namespace {

// One result a row: a column that stands beside in0's rows.
Operand column_beside(const Operand& column, const Operand& in) {
  Operand repeated = column;
  repeated.rank = in.rank;
  repeated.sizes = in.sizes;
  if (column.rank < in.rank) repeated.strides[in.rank - 1u] = 0;
  return repeated;
}

Rows<2> rows_and_column(const Call& call) {
  return Rows<2>({call.in[0], column_beside(call.out[0], call.in[0])});
}

template <class C>
struct RowNorm {
  Rows<2> rows;
  LEDGER_DEVICE_ONLY void operator()(Team& team, std::uint64_t row) const {
    std::byte* at[2];
    rows.leading.locate(row, at);
    const C total = team.sum<C>(rows.width, [&](std::uint64_t i) {
      const C x = rows.template get<C>(at, 0, i);
      return x * x;
    });
    team.each([&](unsigned lane) {
      if (lane == 0) store(at[1], std::sqrt(total), rows.dtypes[1]);
    });
  }
};

struct Argmax {
  Rows<2> rows;
  LEDGER_DEVICE_ONLY void operator()(Team& team, std::uint64_t row) const {
    std::byte* at[2];
    rows.leading.locate(row, at);
    const double largest = team.over<double>(rows.width, rows.get<double>(at, 0, 0), Largest{},
                                             [&](std::uint64_t i) { return rows.get<double>(at, 0, i); });
    const std::uint64_t place = team.over<std::uint64_t>(rows.width, rows.width, Smallest{}, [&](std::uint64_t i) {
      return rows.get<double>(at, 0, i) == largest ? i : rows.width;
    });
    team.each([&](unsigned lane) {
      if (lane == 0) store(at[1], static_cast<double>(place), rows.dtypes[1]);
    });
  }
};

struct Amax {
  Rows<2> rows;
  LEDGER_DEVICE_ONLY void operator()(Team& team, std::uint64_t row) const {
    std::byte* at[2];
    rows.leading.locate(row, at);
    const double largest = team.over<double>(rows.width, rows.get<double>(at, 0, 0), Largest{},
                                             [&](std::uint64_t i) { return rows.get<double>(at, 0, i); });
    team.each([&](unsigned lane) {
      if (lane == 0) store(at[1], largest, rows.dtypes[1]);
    });
  }
};

struct All {
  Rows<2> rows;
  LEDGER_DEVICE_ONLY void operator()(Team& team, std::uint64_t row) const {
    std::byte* at[2];
    rows.leading.locate(row, at);
    const float failing =
        team.sum<float>(rows.width, [&](std::uint64_t i) { return rows.get<float>(at, 0, i) != 0 ? 0.0f : 1.0f; });
    team.each([&](unsigned lane) {
      if (lane == 0) store(at[1], failing == 0 ? 1.0f : 0.0f, rows.dtypes[1]);
    });
  }
};

struct RunningSum {
  Rows<2> rows;  // result, operand
  LEDGER_DEVICE_ONLY void operator()(std::uint64_t row) const {
    std::byte* at[2];
    rows.leading.locate(row, at);
    double total = 0;
    for (std::uint64_t i = 0; i < rows.width; ++i) {
      total += rows.get<double>(at, 1, i);
      rows.set(at, 0, i, total);
    }
  }
};

}  // namespace

void row_norm(Call& call) {
  const Rows<2> rows = rows_and_column(call);
  if (needs_double(call)) return for_teams(call, rows.count(), RowNorm<double>{rows});
  for_teams(call, rows.count(), RowNorm<float>{rows});
}

void argmax(Call& call) {
  const Rows<2> rows = rows_and_column(call);
  for_teams(call, rows.count(), Argmax{rows});
}

void amax(Call& call) {
  const Rows<2> rows = rows_and_column(call);
  for_teams(call, rows.count(), Amax{rows});
}

void all(Call& call) {
  const Rows<2> rows = rows_and_column(call);
  for_teams(call, rows.count(), All{rows});
}

void cumsum(Call& call) {
  const Rows<2> rows({call.out[0], call.in[0]});
  for_elements(call, rows.count(), RunningSum{rows});
}

}  // namespace ledger::LEDGER_DEVICE
