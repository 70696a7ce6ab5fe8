// images.h - formulas of encoders of images, element by element, for the host's kernels and the device's: filters that
// do not overlap, means over squares, runs of image tokens.
#pragma once

#include <cmath>

#include "core/trace/window_grid.h"
#include "probe/host/host_view.h"
#include "probe/math/host_device.h"

namespace ledger::math {

// A view whose elements are found without tables of the host.
struct Places {
  std::byte* data = nullptr;
  DType dtype = DType::f32;
  unsigned rank = 0;
  std::uint64_t sizes[kMaxRank] = {};
  std::int64_t steps[kMaxRank] = {};  // in bytes

  Places() = default;
  explicit Places(const host::HostView& view) : data(view.data), dtype(view.dtype), rank(view.rank) {
    for (std::size_t i = 0; i < kMaxRank; ++i) {
      sizes[i] = i < view.rank ? view.sizes[i] : 1;
      steps[i] = i < view.rank ? view.byte_stride(i) : 0;
    }
  }
  // Of the dimensions from `first` on.
  LEDGER_HOST_DEVICE std::uint64_t count(unsigned first = 0) const {
    std::uint64_t n = 1;
    for (unsigned i = first; i < rank; ++i)
      n *= sizes[i];
    return n;
  }
  // The indices of element `i` of those dimensions.
  LEDGER_HOST_DEVICE void locate(std::uint64_t i, unsigned first, std::uint64_t* index) const {
    for (unsigned d = rank; d-- > first;) {
      index[d] = i % sizes[d];
      i /= sizes[d];
    }
  }
  LEDGER_HOST_DEVICE std::byte* at(const std::uint64_t* index, unsigned dimensions) const {
    std::int64_t offset = 0;
    for (unsigned d = 0; d < dimensions; ++d)
      offset += static_cast<std::int64_t>(index[d]) * steps[d];
    return data + offset;
  }
  // Row number `row` of all but the last dimension.
  LEDGER_HOST_DEVICE std::byte* row(std::uint64_t row) const {
    std::int64_t offset = 0;
    for (unsigned d = rank - 1; d-- > 0;) {
      offset += static_cast<std::int64_t>(row % sizes[d]) * steps[d];
      row /= sizes[d];
    }
    return data + offset;
  }
};

// Where the filter's element `k` lies on the input of the result's element `at`: x[n, c, at * size + k].
LEDGER_HOST_DEVICE inline void under_filter(const Places& w, const std::uint64_t* at, const std::uint64_t* k,
                                            std::uint64_t* index) {
  index[0] = at[0];
  index[1] = k[1];
  for (unsigned d = 2; d < w.rank; ++d)
    index[d] = at[d] * w.sizes[d] + k[d];
}

// Load: how an element is read, load(byte*, dtype).
template <class C, class Load>
struct Convolve {
  Places x, w, bias, out;
  Load load;

  LEDGER_DEVICE_ONLY C operator()(std::uint64_t i) const {
    std::uint64_t at[kMaxRank] = {}, k[kMaxRank] = {}, under[kMaxRank] = {};
    out.locate(i, 0, at);
    k[0] = at[1];
    C sum = bias.data == nullptr ? C{0} : load(bias.at(&at[1], 1), bias.dtype);
    for (std::uint64_t j = 0; j < w.count(1); ++j) {
      w.locate(j, 1, k);
      under_filter(w, at, k, under);
      sum += load(x.at(under, x.rank), x.dtype) * load(w.at(k, w.rank), w.dtype);
    }
    return sum;
  }
};

template <class C, class Load>
struct FilterGradient {
  Places gradient, x, w;
  Load load;

  LEDGER_DEVICE_ONLY C operator()(std::uint64_t i) const {
    std::uint64_t at[kMaxRank] = {}, k[kMaxRank] = {}, under[kMaxRank] = {};
    w.locate(i, 0, k);
    at[1] = k[0];
    C sum = 0;
    const std::uint64_t places = gradient.count(2);
    for (std::uint64_t j = 0; j < gradient.sizes[0] * places; ++j) {
      at[0] = j / places;
      gradient.locate(j % places, 2, at);
      under_filter(w, at, k, under);
      sum += load(gradient.at(at, gradient.rank), gradient.dtype) * load(x.at(under, x.rank), x.dtype);
    }
    return sum;
  }
};

template <class C, class Load>
struct OffsetGradient {
  Places gradient;
  Load load;

  LEDGER_DEVICE_ONLY C operator()(std::uint64_t filter) const {
    std::uint64_t at[kMaxRank] = {};
    at[1] = filter;
    C sum = 0;
    const std::uint64_t places = gradient.count(2);
    for (std::uint64_t j = 0; j < gradient.sizes[0] * places; ++j) {
      at[0] = j / places;
      gradient.locate(j % places, 2, at);
      sum += load(gradient.at(at, gradient.rank), gradient.dtype);
    }
    return sum;
  }
};

template <class C, class Load>
struct SquareMean {
  Places in, out;
  std::uint64_t side;
  Load load;

  LEDGER_DEVICE_ONLY C operator()(std::uint64_t i) const {
    std::uint64_t at[kMaxRank] = {}, from[kMaxRank] = {};
    out.locate(i, 0, at);
    from[0] = at[0];
    from[1] = at[1];
    C sum = 0;
    for (std::uint64_t j = 0; j < side * side; ++j) {
      from[2] = at[2] * side + j / side;
      from[3] = at[3] * side + j % side;
      sum += load(in.at(from, 4), in.dtype);
    }
    return sum / static_cast<C>(side * side);
  }
};

template <class C, class Load>
struct SquareShare {
  Places gradient, out;
  std::uint64_t side;
  Load load;

  LEDGER_DEVICE_ONLY C operator()(std::uint64_t i) const {
    std::uint64_t at[kMaxRank] = {};
    out.locate(i, 0, at);
    at[2] /= side;
    at[3] /= side;
    if (at[2] >= gradient.sizes[2] || at[3] >= gradient.sizes[3]) return 0;  // beyond the last whole square
    return load(gradient.at(at, 4), gradient.dtype) / static_cast<C>(side * side);
  }
};

// The number of the run of true that a place of a row lies in, or -1.
template <class Load>
struct RunNumber {
  Places mask;  // [b, s]
  Load load;

  LEDGER_DEVICE_ONLY bool holds(std::uint64_t row, std::uint64_t place) const {
    const std::uint64_t at[] = {row, place};
    return load(mask.at(at, 2), mask.dtype) != 0;
  }
  LEDGER_DEVICE_ONLY double operator()(std::uint64_t i) const {
    const std::uint64_t row = i / mask.sizes[1], place = i % mask.sizes[1];
    if (!holds(row, place)) return -1;
    double runs = -1;
    for (std::uint64_t j = 0; j <= place; ++j)
      runs += holds(row, j) && (j == 0 || !holds(row, j - 1)) ? 1 : 0;
    return runs;
  }
};

// Which keys a query sees: those up to itself, within a window or a chunk, and those of its own block of images.
struct Seen {
  std::uint64_t keys, queries, before;
  std::int64_t reach;  // a window, or chunks of this size where below 0
  Places blocks;       // int64 [b, s]; no data: there are none

  LEDGER_HOST_DEVICE std::int64_t block(std::uint64_t row, std::uint64_t place) const {
    const std::uint64_t at[] = {row, place};
    return *reinterpret_cast<const std::int64_t*>(blocks.at(at, 2));
  }
  LEDGER_HOST_DEVICE float operator()(std::uint64_t i) const {
    const std::uint64_t key = i % keys, place = i / keys % queries, query = place + before;
    const auto size = static_cast<std::uint64_t>(reach < 0 ? -reach : reach);
    const bool near = reach == 0 || (reach > 0 ? key + size > query : key / size == query / size);
    if (key <= query && near) return 1;
    if (blocks.data == nullptr) return 0;
    const std::uint64_t row = i / keys / queries;
    const std::int64_t mine = block(row, place);
    return mine >= 0 && mine == block(row, key) ? 1.0f : 0.0f;
  }
};

// The token at a place of a row that begins with images: ops.h, load_tokens.
struct ImageTokens {
  std::uint64_t images = 0, tokens = 0, columns = 1;
  std::int64_t id = 0;

  ImageTokens(const Attr& attr, std::uint64_t row_length)
      : images(static_cast<std::uint64_t>(attr.i[0]) >> 32),
        tokens(static_cast<std::uint64_t>(attr.i[0]) & 0xFFFFFFFFu),
        columns(row_length),
        id(attr.i[1]) {}
  LEDGER_HOST_DEVICE std::uint64_t operator()(std::uint64_t i, std::uint64_t random, std::uint64_t vocab) const {
    const std::uint64_t token = random % vocab;
    if (images == 0) return token;
    const std::uint64_t place = i % columns, own = static_cast<std::uint64_t>(id);
    if (place / (tokens + 1) < images && place % (tokens + 1) != 0) return own;
    return token == own ? (token + 1) % vocab : token;
  }
};

// im2col, of squares that do not overlap.
template <class C, class Load>
struct Unfolded {
  Places in;
  std::uint64_t side;
  Load load;

  LEDGER_DEVICE_ONLY C operator()(std::uint64_t i) const {
    const std::uint64_t across = in.sizes[3] / side, places = across * (in.sizes[2] / side);
    const std::uint64_t place = i % places, pixel = i / places % (in.sizes[1] * side * side);
    const std::uint64_t from[] = {i / places / (in.sizes[1] * side * side), pixel / (side * side),
                                  place / across * side + pixel / side % side, place % across * side + pixel % side};
    return load(in.at(from, 4), in.dtype);
  }
};

// Element i of ops.h's image_turns.
struct ImageTurn {
  std::uint64_t side, angles;  // angles: of a place
  double theta;

  LEDGER_DEVICE_ONLY float operator()(std::uint64_t i) const {
    const std::uint64_t place = i / (2 * angles), angle = i / 2 % angles, half = angles / 2;
    if (place == side * side) return i % 2 == 0 ? 1.0f : 0.0f;
    const std::uint64_t steps = 1 + (angle < half ? place % side : place / side);
    const auto exponent = static_cast<float>(2 * (angle % half)) / static_cast<float>(angles);
    const float turn = static_cast<float>(steps) / std::pow(static_cast<float>(theta), exponent);
    return i % 2 == 0 ? std::cos(turn) : std::sin(turn);
  }
};

// Where the tokens of images stand in windows, or came from: ops.h, window_order. Numbers of an image's first band, of
// windows side by side, all count before those of the next.
struct WindowOrder {
  std::uint64_t rows, columns, side;
  bool back;

  WindowOrder(const WindowGrid& grid, bool to_grid)
      : rows(grid.rows), columns(grid.columns), side(grid.side), back(to_grid) {}
  LEDGER_HOST_DEVICE static std::uint64_t least(std::uint64_t a, std::uint64_t b) { return a < b ? a : b; }
  LEDGER_HOST_DEVICE std::uint64_t in_grid(std::uint64_t place) const {
    const std::uint64_t top = place / (side * columns) * side, height = least(side, rows - top);
    const std::uint64_t in_band = place - top * columns;
    const std::uint64_t left = in_band / (side * height) * side, width = least(side, columns - left);
    const std::uint64_t in_window = in_band - left * height;
    return (top + in_window / width) * columns + left + in_window % width;
  }
  LEDGER_HOST_DEVICE std::uint64_t in_windows(std::uint64_t place) const {
    const std::uint64_t row = place / columns, column = place % columns;
    const std::uint64_t top = row / side * side, height = least(side, rows - top);
    const std::uint64_t left = column / side * side, width = least(side, columns - left);
    return top * columns + left * height + (row - top) * width + column - left;
  }
  LEDGER_HOST_DEVICE double operator()(std::uint64_t i) const {
    const std::uint64_t image = i / (rows * columns) * (rows * columns), place = i - image;
    return static_cast<double>(image + (back ? in_windows(place) : in_grid(place)));
  }
};

}  // namespace ledger::math
