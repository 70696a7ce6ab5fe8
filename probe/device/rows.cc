// rows.cc - operators that need a whole row of the last dimension: softmax, log-softmax and norms.
#include <cmath>

#include "probe/device/kernels.h"
#include "probe/device/memory.h"

namespace ledger::LEDGER_DEVICE {
namespace {

template <class C>
struct Softmax {
  Rows<2> rows;  // result, operand
  bool log;
  C scale;
  std::uint64_t queries;  // 0: every row counts whole; else row r of so many as far as its query sees

  LEDGER_DEVICE_ONLY void operator()(Team& team, std::uint64_t row) const {
    std::byte* at[2];
    rows.leading.locate(row, at);
    const auto x = [&](std::uint64_t i) { return scale * rows.template get<C>(at, 1, i); };
    std::uint64_t seen = rows.width;
    if (queries != 0 && row % queries + 1 < seen) seen = row % queries + 1;
    const C largest = team.over<C>(seen, x(0), Largest{}, x);
    const C total = team.sum<C>(seen, [&](std::uint64_t i) { return std::exp(x(i) - largest); });
    const C log_total = std::log(total);
    team.for_each(rows.width, [&](std::uint64_t i) {
      const C value = log ? x(i) - largest - log_total : std::exp(x(i) - largest) / total;
      rows.set(at, 0, i, i < seen ? value : C{0});
    });
  }
};

template <class C>
struct SoftmaxBackward {
  Rows<3> rows;  // result, gradient, (log-)softmax
  bool log;
  C scale;

  LEDGER_DEVICE_ONLY void operator()(Team& team, std::uint64_t row) const {
    std::byte* at[3];
    rows.leading.locate(row, at);
    const auto g = [&](std::uint64_t i) { return rows.template get<C>(at, 1, i); };
    const auto y = [&](std::uint64_t i) { return rows.template get<C>(at, 2, i); };
    const C total = team.sum<C>(rows.width, [&](std::uint64_t i) { return log ? g(i) : g(i) * y(i); });
    team.for_each(rows.width, [&](std::uint64_t i) {
      rows.set(at, 0, i, log ? g(i) - std::exp(y(i)) * total : scale * (y(i) * (g(i) - total)));
    });
  }
};

// A log-softmax has no attributes.
double scale_of(const Call& call) {
  return call.attr.x == 0 ? 1 : call.attr.x;
}

void softmax_kind(Call& call, bool log) {
  const Rows<2> rows({call.out[0], call.in[0]});
  const Operand& x = call.in[0];
  const std::uint64_t queries = call.attr.i[0] == 0 ? 0 : x.sizes[x.rank - 2u];
  if (needs_double(call)) return for_teams(call, rows.count(), Softmax<double>{rows, log, scale_of(call), queries});
  for_teams(call, rows.count(), Softmax<float>{rows, log, static_cast<float>(scale_of(call)), queries});
}

void softmax_backward_kind(Call& call, bool log) {
  const Rows<3> rows({call.out[0], call.in[0], call.in[1]});
  if (needs_double(call)) return for_teams(call, rows.count(), SoftmaxBackward<double>{rows, log, scale_of(call)});
  for_teams(call, rows.count(), SoftmaxBackward<float>{rows, log, static_cast<float>(scale_of(call))});
}

}  // namespace

void softmax(Call& call) {
  softmax_kind(call, false);
}

void softmax_backward(Call& call) {
  softmax_backward_kind(call, false);
}

void log_softmax(Call& call) {
  softmax_kind(call, true);
}

void log_softmax_backward(Call& call) {
  softmax_backward_kind(call, true);
}

namespace {

// A vector along the rows, or `otherwise` throughout where there is none.
struct Vector {
  const std::byte* data = nullptr;
  std::int64_t step = 0;
  DType dtype = DType::f32;
  double otherwise;

  Vector(std::span<const Operand> in, std::size_t index, double value) : otherwise(value) {
    if (index >= in.size()) return;
    data = in[index].data;
    step = host::last_step(in[index]);
    dtype = in[index].dtype;
  }
  template <class C>
  LEDGER_DEVICE_ONLY C get(std::uint64_t i) const {
    return data == nullptr ? static_cast<C>(otherwise)
                           : load_float<C>(data + static_cast<std::int64_t>(i) * step, dtype);
  }
};

template <class C>
struct LayerNorm {
  Rows<4> rows;  // result, mean, rstd, operand
  Vector weight, bias;
  double eps;

  LEDGER_DEVICE_ONLY void operator()(Team& team, std::uint64_t row) const {
    std::byte* at[4];
    rows.leading.locate(row, at);
    const auto x = [&](std::uint64_t i) { return rows.template get<C>(at, 3, i); };
    const C width = static_cast<C>(rows.width);
    const C mean = team.sum<C>(rows.width, x) / width;
    const C squares = team.sum<C>(rows.width, [&](std::uint64_t i) { return (x(i) - mean) * (x(i) - mean); });
    const C rstd = 1 / std::sqrt(squares / width + static_cast<C>(eps));
    team.for_each(rows.width, [&](std::uint64_t i) {
      rows.set(at, 0, i, (x(i) - mean) * rstd * weight.get<C>(i) + bias.get<C>(i));
    });
    team.each([&](unsigned lane) {
      if (lane != 0) return;
      store_float(at[1], mean, rows.dtypes[1]);
      store_float(at[2], rstd, rows.dtypes[2]);
    });
  }
};

// dx = r (g w - mean(g w) - y mean(g w y)), y = (x - m) r.
template <class C>
struct LayerNormBackward {
  Rows<5> rows;  // result, gradient, operand, mean, rstd
  Vector weight;

  LEDGER_DEVICE_ONLY void operator()(Team& team, std::uint64_t row) const {
    std::byte* at[5];
    rows.leading.locate(row, at);
    const C m = load_float<C>(at[3], rows.dtypes[3]), r = load_float<C>(at[4], rows.dtypes[4]);
    const auto g = [&](std::uint64_t i) { return rows.template get<C>(at, 1, i) * weight.get<C>(i); };
    const auto y = [&](std::uint64_t i) { return (rows.template get<C>(at, 2, i) - m) * r; };
    const C width = static_cast<C>(rows.width);
    const C mean_g = team.sum<C>(rows.width, g) / width;
    const C mean_gy = team.sum<C>(rows.width, [&](std::uint64_t i) { return g(i) * y(i); }) / width;
    team.for_each(rows.width, [&](std::uint64_t i) { rows.set(at, 0, i, r * (g(i) - mean_g - y(i) * mean_gy)); });
  }
};

LEDGER_DEVICE_ONLY inline std::int64_t element(DType dtype) {
  std::int64_t bytes = 0;
  with_float<double>(dtype, [&]<class T>(T) { bytes = sizeof(T); });
  return bytes;
}

template <class C>
LEDGER_DEVICE_ONLY void put(const Operand& to, std::uint64_t column, C value) {
  store_float(to.data + static_cast<std::int64_t>(column) * to.strides[0] * element(to.dtype), value, to.dtype);
}

// dw = sum g y; db = sum g, over all rows: a thread a column.
template <class C>
struct LayerNormWeights {
  Rows<5> rows;  // as above
  std::uint64_t count;
  Operand to_weight, to_bias;  // the second may have no data

  LEDGER_DEVICE_ONLY void operator()(std::uint64_t column) const {
    C weight = 0, bias = 0;
    for (std::uint64_t row = 0; row < count; ++row) {
      std::byte* at[5];
      rows.leading.locate(row, at);
      const C g = rows.template get<C>(at, 1, column);
      const C x = rows.template get<C>(at, 2, column);
      weight += g * (x - load_float<C>(at[3], rows.dtypes[3])) * load_float<C>(at[4], rows.dtypes[4]);
      bias += g;
    }
    put(to_weight, column, weight);
    if (to_bias.data != nullptr) put(to_bias, column, bias);
  }
};

template <class C>
void normalise(Call& call) {
  const Rows<4> rows({call.out[0], call.out[1], call.out[2], call.in[0]});
  for_teams(call, rows.count(), LayerNorm<C>{rows, Vector(call.in, 1, 1), Vector(call.in, 2, 0), call.attr.x});
}

template <class C>
void normalise_backward(Call& call) {
  const Rows<5> rows({call.out[0], call.in[0], call.in[1], call.in[2], call.in[3]});
  for_teams(call, rows.count(), LayerNormBackward<C>{rows, Vector(call.in, 4, 1)});
  if (call.out.size() < 2) return;
  const Operand to_bias = call.out.size() > 2 ? call.out[2] : Operand{};
  for_elements(call, rows.width, LayerNormWeights<C>{rows, rows.count(), call.out[1], to_bias});
}

template <class C>
struct RmsNorm {
  Rows<4> rows;  // result, rstd, operand, what is added to it before in its place
  Vector weight;
  double eps, offset;
  bool adds;

  LEDGER_DEVICE_ONLY void operator()(Team& team, std::uint64_t row) const {
    std::byte* at[4];
    rows.leading.locate(row, at);
    const auto x = [&](std::uint64_t i) { return rows.template get<C>(at, 2, i); };
    if (adds) {  // each lane reads again what it wrote itself
      team.for_each(rows.width, [&](std::uint64_t i) { rows.set(at, 2, i, x(i) + rows.template get<C>(at, 3, i)); });
    }
    const C squares = team.sum<C>(rows.width, [&](std::uint64_t i) { return x(i) * x(i); });
    const C rstd = 1 / std::sqrt(squares / static_cast<C>(rows.width) + static_cast<C>(eps));
    const C more = static_cast<C>(offset);
    team.for_each(rows.width, [&](std::uint64_t i) { rows.set(at, 0, i, x(i) * rstd * (weight.get<C>(i) + more)); });
    team.each([&](unsigned lane) {
      if (lane == 0) store_float(at[1], rstd, rows.dtypes[1]);
    });
  }
};

// dx = r (g w - y mean(g w y)), y = x r, plus the gradient that came past the norm.
template <class C>
struct RmsNormBackward {
  Rows<5> rows;  // result, gradient, operand, rstd, the gradient past the norm
  Vector weight;
  double offset;
  bool adds;

  LEDGER_DEVICE_ONLY void operator()(Team& team, std::uint64_t row) const {
    std::byte* at[5];
    rows.leading.locate(row, at);
    const C r = load_float<C>(at[3], rows.dtypes[3]), more = static_cast<C>(offset);
    const auto g = [&](std::uint64_t i) { return rows.template get<C>(at, 1, i) * (weight.get<C>(i) + more); };
    const auto y = [&](std::uint64_t i) { return rows.template get<C>(at, 2, i) * r; };
    const C sum = team.sum<C>(rows.width, [&](std::uint64_t i) { return g(i) * y(i); });
    const C mean = sum / static_cast<C>(rows.width);
    team.for_each(rows.width, [&](std::uint64_t i) {
      const C past = adds ? rows.template get<C>(at, 4, i) : C{0};
      rows.set(at, 0, i, r * (g(i) - y(i) * mean) + past);
    });
  }
};

// dw = sum g y over all rows: a thread a column.
template <class C>
struct RmsNormWeight {
  Rows<5> rows;  // as above
  std::uint64_t count;
  Operand to_weight;

  LEDGER_DEVICE_ONLY void operator()(std::uint64_t column) const {
    C weight = 0;
    for (std::uint64_t row = 0; row < count; ++row) {
      std::byte* at[5];
      rows.leading.locate(row, at);
      weight += rows.template get<C>(at, 1, column) * rows.template get<C>(at, 2, column) *
                load_float<C>(at[3], rows.dtypes[3]);
    }
    put(to_weight, column, weight);
  }
};

// To the weight.
double added(const Call& call) {
  return static_cast<double>(call.attr.i[0]);
}

template <class C>
void normalise_rms(Call& call) {
  const bool adds = call.out.size() > 2;
  const Rows<4> rows({call.out[0], call.out[1], adds ? call.out[2] : call.in[0], call.in[0]});
  for_teams(call, rows.count(), RmsNorm<C>{rows, Vector(call.in, adds ? 2 : 1, 1), call.attr.x, added(call), adds});
}

template <class C>
void normalise_rms_backward(Call& call) {
  const bool adds = call.in.size() > 4;
  const Rows<5> rows({call.out[0], call.in[0], call.in[1], call.in[2], call.in[adds ? 4 : 0]});
  // First the weight's: dx may take the gradient's place.
  if (call.out.size() > 1) for_elements(call, rows.width, RmsNormWeight<C>{rows, rows.count(), call.out[1]});
  for_teams(call, rows.count(), RmsNormBackward<C>{rows, Vector(call.in, 3, 1), added(call), adds});
}

}  // namespace

void layer_norm(Call& call) {
  (needs_double(call) ? normalise<double> : normalise<float>)(call);
}

void layer_norm_backward(Call& call) {
  (needs_double(call) ? normalise_backward<double> : normalise_backward<float>)(call);
}

void rms_norm(Call& call) {
  (needs_double(call) ? normalise_rms<double> : normalise_rms<float>)(call);
}

void rms_norm_backward(Call& call) {
  (needs_double(call) ? normalise_rms_backward<double> : normalise_rms_backward<float>)(call);
}

}  // namespace ledger::LEDGER_DEVICE
