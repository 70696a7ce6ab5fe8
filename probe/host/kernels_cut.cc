// kernels_cut.cc - cut cross-entropy: logits exist one row at a time, in double.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "probe/host/kernels.h"
#include "probe/host/strided_loop.h"

namespace ledger::host {
namespace {

constexpr const char* kBadPosition = "a position or its label is out of range";

std::vector<double> row_of(const Matrix& matrix, std::uint64_t row) {
  std::vector<double> values(matrix.cols);
  load_strip(values.data(), matrix.at(row, 0), matrix.col_stride, matrix.cols, matrix.dtype);
  return values;
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double total = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    total += a[i] * b[i];
  return total;
}

std::vector<std::vector<double>> rows_of(const Matrix& matrix) {
  std::vector<std::vector<double>> rows(matrix.rows);
  for (std::uint64_t i = 0; i < matrix.rows; ++i)
    rows[i] = row_of(matrix, i);
  return rows;
}

struct Token {
  std::uint64_t row, label;
};

// The token at position i and the label that follows it; nothing when either lies outside.
std::optional<Token> token_at(const HostView& positions, const HostView& labels, std::uint64_t i, const Matrix& e,
                              const Matrix& c) {
  const auto row = index_at(positions, i, e.rows - 1);  // a row must follow
  if (!row) return std::nullopt;
  const auto label = index_at(labels, *row + 1, c.rows);
  if (!label) return std::nullopt;
  return Token{*row, *label};
}

}  // namespace

void cut_positions(KernelCall& call) {
  const HostView &labels = call.in[0], &out = call.out[0];
  std::uint64_t next = 0;
  for (std::uint64_t i = 0; i < labels.sizes[0]; ++i) {
    HostView row = labels;
    row.data += static_cast<std::ptrdiff_t>(i) * labels.byte_stride(0);
    row.strides[0] = labels.strides[1];
    for (std::uint64_t j = 0; j + 1 < labels.sizes[1]; ++j) {
      if (int_at(row, j + 1) == kIgnoreIndex) continue;
      if (next == out.sizes[0]) {
        call.error = "more labels than positions";
        return;
      }
      const auto position = static_cast<std::int64_t>(i * labels.sizes[1] + j);
      std::memcpy(out.data + static_cast<std::ptrdiff_t>(next++) * out.byte_stride(0), &position, sizeof position);
    }
  }
  if (next != out.sizes[0]) call.error = "fewer labels than positions";
}

void cut_logsumexp(KernelCall& call) {
  const Matrix e = matrix_of(call.in[0]), c = matrix_of(call.in[1]);
  const HostView &positions = call.in[2], &out = call.out[0];
  const std::vector<std::vector<double>> columns = rows_of(c);
  std::vector<double> logits(c.rows);
  for (std::uint64_t i = 0; i < positions.sizes[0]; ++i) {
    const auto token = index_at(positions, i, e.rows);
    if (!token) {
      call.error = kBadPosition;
      return;
    }
    const std::vector<double> row = row_of(e, *token);
    for (std::uint64_t v = 0; v < c.rows; ++v)
      logits[v] = dot(row, columns[v]);
    const double largest = *std::max_element(logits.begin(), logits.end());
    double total = 0;
    for (const double logit : logits)
      total += std::exp(logit - largest);
    store_one(out.data + static_cast<std::ptrdiff_t>(i) * out.byte_stride(0), largest + std::log(total), out.dtype);
  }
  for (std::size_t k = 1; k < call.out.size(); ++k)
    generate<float>(call.out[k], [](std::uint64_t) { return 0.0f; });
}

void cut_neg_dot(KernelCall& call) {
  const Matrix e = matrix_of(call.in[0]), c = matrix_of(call.in[1]);
  const HostView& out = call.out[0];
  for (std::uint64_t i = 0; i < out.sizes[0]; ++i) {
    const std::optional<Token> token = token_at(call.in[2], call.in[3], i, e, c);
    if (!token) {
      call.error = kBadPosition;
      return;
    }
    store_one(out.data + static_cast<std::ptrdiff_t>(i) * out.byte_stride(0),
              -dot(row_of(e, token->row), row_of(c, token->label)), out.dtype);
  }
}

void cut_backward(KernelCall& call) {
  const Matrix e = matrix_of(call.in[1]), c = matrix_of(call.in[2]);
  const HostView &lse = call.in[3], &positions = call.in[4];
  const std::uint64_t count = positions.sizes[0];
  const double scale = load_one<double>(call.in[0].data, call.in[0].dtype) / static_cast<double>(count);
  const std::vector<std::vector<double>> columns = rows_of(c);
  std::vector<double> de(e.rows * e.cols, 0.0), dc(c.rows * c.cols, 0.0);
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::optional<Token> token = token_at(positions, call.in[5], i, e, c);
    if (!token) {
      call.error = kBadPosition;
      return;
    }
    const std::vector<double> row = row_of(e, token->row);
    const double total = load_one<double>(lse.data + static_cast<std::ptrdiff_t>(i) * lse.byte_stride(0), lse.dtype);
    for (std::uint64_t v = 0; v < c.rows; ++v) {
      const double gradient = scale * (std::exp(dot(row, columns[v]) - total) - (v == token->label ? 1.0 : 0.0));
      for (std::uint64_t k = 0; k < e.cols; ++k) {
        de[token->row * e.cols + k] += gradient * columns[v][k];
        dc[v * c.cols + k] += gradient * row[k];
      }
    }
  }
  std::size_t next = 0;
  for (std::size_t which = 0; which < 2; ++which) {
    if (call.attr.i[which] == 0) continue;
    const std::vector<double>& values = which == 0 ? de : dc;
    generate<double>(call.out[next++], [&](std::uint64_t i) { return values[i]; });
  }
}

}  // namespace ledger::host
