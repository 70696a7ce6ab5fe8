// kernels_attention.cc - causal attention in blocks of queries and keys, never the whole [s,s] matrix of scores.
//
// Forward: online softmax (Milakov, Gimelshein 2018; FlashAttention, Dao et al. 2022, algorithm 1). Backward: scores
// are recomputed from the logsumexp (ibid., algorithm 4). Letters: S scores, P probabilities, O output, d... their
// gradients.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "probe/host/gemm.h"
#include "probe/host/kernels.h"
#include "probe/host/strips.h"

namespace ledger::host {
namespace {

constexpr std::size_t kBlock = 64;  // queries or keys

// Rows [first, first+count) of a matrix as a dense block, and the same transposed.
template <class C>
void load_rows(std::vector<C>& to, const Matrix& m, std::uint64_t first, std::size_t count) {
  to.resize(count * m.cols);
  for (std::size_t i = 0; i < count; ++i)
    load_strip(&to[i * m.cols], m.at(first + i, 0), m.col_stride, m.cols, m.dtype);
}

template <class C>
std::vector<C> transposed(const std::vector<C>& block, std::size_t rows) {
  const std::size_t cols = block.size() / rows;
  std::vector<C> result(block.size());
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t j = 0; j < cols; ++j)
      result[j * rows + i] = block[i * cols + j];
  }
  return result;
}

template <class C>
void store_rows(const Matrix& m, std::uint64_t first, const std::vector<C>& from) {
  for (std::size_t i = 0; i * m.cols < from.size(); ++i) {
    store_strip(m.at(first + i, 0), m.col_stride, &from[i * m.cols], m.cols, m.dtype);
  }
}

// A block of queries against a block of keys.
struct BlockPair {
  std::uint64_t query = 0, key = 0;  // places of the first of each among the keys
  std::size_t queries = 0, keys = 0;

  // How many keys of this block the i-th query sees.
  std::size_t visible(std::size_t i) const {
    const std::uint64_t position = query + i;
    return position < key ? 0 : static_cast<std::size_t>(std::min<std::uint64_t>(keys, position - key + 1));
  }
};

// visit(pair) for the blocks of keys that the queries from `query` on see.
template <class Visit>
void for_each_key_block(std::uint64_t query, std::size_t queries, std::uint64_t length, Visit visit) {
  for (std::uint64_t key = 0; key < std::min<std::uint64_t>(query + queries, length); key += kBlock) {
    visit(BlockPair{query, key, queries, std::min<std::uint64_t>(kBlock, length - key)});
  }
}

// S = scale Q K^T, with -inf where the causal mask hides the key.
template <class C>
void scores(std::vector<C>& s, const BlockPair& pair, const std::vector<C>& q, const Matrix& keys, C scale) {
  std::vector<C> k;
  load_rows(k, keys, pair.key, pair.keys);
  k = transposed(k, pair.keys);
  s.assign(pair.queries * pair.keys, C{0});
  add_product({q.data(), keys.cols, 1, k.data(), s.data(), pair.queries, pair.keys, keys.cols});
  for (std::size_t i = 0; i < pair.queries; ++i) {
    C* row = &s[i * pair.keys];
    const std::size_t visible = pair.visible(i);
    for (std::size_t j = 0; j < visible; ++j)
      row[j] *= scale;
    std::fill(row + visible, row + pair.keys, -std::numeric_limits<C>::infinity());
  }
}

template <class C>
struct RowState {
  std::vector<C> largest, total;

  explicit RowState(std::size_t rows) : largest(rows, -std::numeric_limits<C>::infinity()), total(rows, C{0}) {}

  // Turns scores into exp(score - largest so far); calls rescale(i, factor) where the row's largest has grown.
  template <class Rescale>
  void absorb(std::vector<C>& s, const BlockPair& pair, Rescale rescale) {
    for (std::size_t i = 0; i < pair.queries; ++i) {
      if (pair.visible(i) == 0) {
        std::fill_n(&s[i * pair.keys], pair.keys, C{0});
        continue;
      }
      C* row = &s[i * pair.keys];
      const C before = largest[i];
      largest[i] = std::max(before, *std::max_element(row, row + pair.keys));
      const C factor = std::exp(before - largest[i]);
      C sum = 0;
      for (std::size_t j = 0; j < pair.keys; ++j)
        sum += row[j] = std::exp(row[j] - largest[i]);
      total[i] = total[i] * factor + sum;
      rescale(i, factor);
    }
  }
  C logsumexp(std::size_t i) const { return largest[i] + std::log(total[i]); }
};

// Where the first query stands: after the keys of earlier tokens or, where nothing is hidden, after all.
std::uint64_t first_place(const KernelCall& call, const Matrix& q, const Matrix& k) {
  return call.attr.i[1] != 0 ? k.rows : k.rows - q.rows;
}

template <class C>
void attend(const Matrix& q, const Matrix& k, const Matrix& v, const Matrix& out, const Matrix& logsumexp, C scale,
            std::uint64_t before) {
  std::vector<C> queries, values, s, o;
  for (std::uint64_t first = 0; first < q.rows; first += kBlock) {
    const std::size_t count = std::min<std::uint64_t>(kBlock, q.rows - first);
    load_rows(queries, q, first, count);
    o.assign(count * v.cols, C{0});
    RowState<C> state(count);
    for_each_key_block(before + first, count, k.rows, [&](const BlockPair& pair) {
      scores(s, pair, queries, k, scale);
      state.absorb(s, pair, [&](std::size_t i, C factor) {
        for (std::size_t j = 0; j < v.cols; ++j)
          o[i * v.cols + j] *= factor;
      });
      load_rows(values, v, pair.key, pair.keys);
      add_product({s.data(), pair.keys, 1, values.data(), o.data(), count, v.cols, pair.keys});
    });
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t j = 0; j < v.cols; ++j)
        o[i * v.cols + j] /= state.total[i];
      store_one(logsumexp.at(first + i, 0), state.logsumexp(i), logsumexp.dtype);
    }
    store_rows(out, first, o);
  }
}

struct Operands {
  Matrix gradient, q, k, v, out, logsumexp;
  std::uint64_t before = 0;  // as first_place() has it
};

// The stored logsumexp is fp32, which is too coarse for gradients in fp64: there it is computed anew.
template <class C>
std::vector<C> row_logsumexp(const Operands& x, std::uint64_t first, const std::vector<C>& queries, C scale) {
  const std::size_t count = queries.size() / x.q.cols;
  std::vector<C> result(count);
  if (sizeof(C) <= element_bytes(x.logsumexp.dtype)) {
    load_strip(result.data(), x.logsumexp.at(first, 0), x.logsumexp.row_stride, count, x.logsumexp.dtype);
    return result;
  }
  RowState<C> state(count);
  std::vector<C> s;
  for_each_key_block(x.before + first, count, x.k.rows, [&](const BlockPair& pair) {
    scores(s, pair, queries, x.k, scale);
    state.absorb(s, pair, [](std::size_t, C) {});
  });
  for (std::size_t i = 0; i < count; ++i)
    result[i] = state.logsumexp(i);
  return result;
}

// One block of queries: what does not depend on the keys.
template <class C>
struct QueryBlock {
  std::vector<C> q, gradient, logsumexp, inner;  // inner: sum over d of dO * O

  QueryBlock(const Operands& x, std::uint64_t first, std::size_t count, C scale) {
    std::vector<C> o;
    load_rows(q, x.q, first, count);
    load_rows(gradient, x.gradient, first, count);
    load_rows(o, x.out, first, count);
    inner.assign(count, C{0});
    for (std::size_t i = 0; i < o.size(); ++i)
      inner[i / x.out.cols] += gradient[i] * o[i];
    logsumexp = row_logsumexp(x, first, q, scale);
  }
};

// Adds one query head's part to dK and dV (dense, [s,d], each of its own width) and writes its dQ.
template <class C>
void attend_backward(const Operands& x, const Matrix& dq_out, std::vector<C>& dk, std::vector<C>& dv, C scale) {
  const std::size_t d = x.q.cols, width = x.v.cols;
  std::vector<C> keys, values, p, dp, dq;
  for (std::uint64_t first = 0; first < x.q.rows; first += kBlock) {
    const std::size_t count = std::min<std::uint64_t>(kBlock, x.q.rows - first);
    const QueryBlock<C> block(x, first, count, scale);
    dq.assign(count * d, C{0});
    for_each_key_block(x.before + first, count, x.k.rows, [&](const BlockPair& pair) {
      scores(p, pair, block.q, x.k, scale);
      load_rows(keys, x.k, pair.key, pair.keys);
      load_rows(values, x.v, pair.key, pair.keys);
      values = transposed(values, pair.keys);
      dp.assign(p.size(), C{0});
      add_product({block.gradient.data(), width, 1, values.data(), dp.data(), count, pair.keys, width});
      for (std::size_t i = 0; i < p.size(); ++i) {
        const std::size_t row = i / pair.keys;
        p[i] = std::exp(p[i] - block.logsumexp[row]);
        dp[i] = p[i] * (dp[i] - block.inner[row]) * scale;  // from here on dS
      }
      add_product({p.data(), 1, pair.keys, block.gradient.data(), &dv[pair.key * width], pair.keys, width, count});
      add_product({dp.data(), 1, pair.keys, block.q.data(), &dk[pair.key * d], pair.keys, d, count});
      add_product({dp.data(), pair.keys, 1, keys.data(), dq.data(), count, d, pair.keys});
    });
    store_rows(dq_out, first, dq);
  }
}

// [s] of a [b,nh,s] view as a column.
Matrix column_of(const HostView& view, std::uint64_t batch, std::uint64_t head) {
  std::byte* data = view.data + static_cast<std::ptrdiff_t>(batch) * view.byte_stride(0) +
                    static_cast<std::ptrdiff_t>(head) * view.byte_stride(1);
  return {data, view.dtype, view.sizes[2], 1, view.byte_stride(2), 0};
}

template <class C>
C scale_of(const KernelCall& call, const HostView& q) {
  return call.attr.x != 0 ? static_cast<C>(call.attr.x) : 1 / std::sqrt(static_cast<C>(q.sizes[3]));
}

template <class C>
void forward(KernelCall& call) {
  const HostView &q = call.in[0], &k = call.in[1], &v = call.in[2];
  const std::uint64_t heads = q.sizes[1], kv_heads = k.sizes[1];
  const C scale = scale_of<C>(call, q);
  for (std::uint64_t b = 0; b < q.sizes[0]; ++b) {
    for (std::uint64_t head = 0; head < heads; ++head) {
      const std::uint64_t kv_head = head * kv_heads / heads;
      const Matrix queries = matrix_of(q, b, head), keys = matrix_of(k, b, kv_head);
      attend<C>(queries, keys, matrix_of(v, b, kv_head), matrix_of(call.out[0], b, head),
                column_of(call.out[1], b, head), scale, first_place(call, queries, keys));
    }
  }
}

template <class C>
void backward(KernelCall& call) {
  const auto& in = call.in;
  const std::uint64_t heads = in[1].sizes[1], kv_heads = in[2].sizes[1];
  const C scale = scale_of<C>(call, in[1]);
  for (std::uint64_t b = 0; b < in[1].sizes[0]; ++b) {
    std::vector<C> dk, dv;
    for (std::uint64_t head = 0; head < heads; ++head) {
      const std::uint64_t kv_head = head * kv_heads / heads;
      const Matrix queries = matrix_of(in[1], b, head), keys = matrix_of(in[2], b, kv_head);
      const Operands x{matrix_of(in[0], b, head),
                       queries,
                       keys,
                       matrix_of(in[3], b, kv_head),
                       matrix_of(in[4], b, head),
                       column_of(in[5], b, head),
                       first_place(call, queries, keys)};
      const bool first_of_group = head == 0 || (head - 1) * kv_heads / heads != kv_head;
      const bool last_of_group = head + 1 == heads || (head + 1) * kv_heads / heads != kv_head;
      if (first_of_group) {
        dk.assign(x.k.rows * x.k.cols, C{0});
        dv.assign(x.v.rows * x.v.cols, C{0});
      }
      attend_backward<C>(x, matrix_of(call.out[0], b, head), dk, dv, scale);
      if (last_of_group) {
        store_rows(matrix_of(call.out[1], b, kv_head), 0, dk);
        store_rows(matrix_of(call.out[2], b, kv_head), 0, dv);
      }
    }
  }
}

// Where nothing is hidden there may be fewer keys than queries: half of those of another rank's sequence.
bool shapes_match(const HostView& q, const HostView& k, const HostView& v, bool causal) {
  return q.rank == 4 && k.rank == 4 && v.rank == 4 && (!causal || q.sizes[2] <= k.sizes[2]) &&
         q.sizes[3] == k.sizes[3] && std::equal(k.sizes.begin(), k.sizes.begin() + 3, v.sizes.begin()) &&
         k.sizes[1] > 0 && q.sizes[1] % k.sizes[1] == 0;
}

constexpr const char* kBadShapes = "queries, keys and values have shapes that do not go together";

// What is wrong with a call whose queries are in[first], or nullptr.
const char* refusal(const KernelCall& call, std::size_t first) {
  if (!shapes_match(call.in[first], call.in[first + 1], call.in[first + 2], call.attr.i[1] == 0)) return kBadShapes;
  return call.attr.i[0] != 0 ? "dropout inside attention is not computed here: set the model's attention dropout to 0"
                             : nullptr;
}

}  // namespace

namespace {

// softmax(scale Q K^T + bias) of one head, in place on its scores; the bias hides keys, nothing else does. `normaliser`
// gets each row's logsumexp. (The stored one is fp32, too coarse for gradients in fp64: backward calls this again.)
template <class C, class Normaliser>
std::vector<C> biased_probabilities(const std::vector<C>& queries, const std::vector<C>& keys, const Matrix& bias,
                                    std::size_t width, C scale, Normaliser normaliser) {
  const std::size_t rows = queries.size() / width, count = keys.size() / width;
  std::vector<C> p(rows * count, C{0});
  const std::vector<C> columns = transposed(keys, count);
  add_product({queries.data(), width, 1, columns.data(), p.data(), rows, count, width});
  for (std::size_t i = 0; i < rows; ++i) {
    C* row = &p[i * count];
    for (std::size_t j = 0; j < count; ++j)
      row[j] = row[j] * scale + load_one<C>(bias.at(i, j), bias.dtype);
    const C largest = *std::max_element(row, row + count);
    C total = 0;
    for (std::size_t j = 0; j < count; ++j)
      total += row[j] = std::exp(row[j] - largest);
    for (std::size_t j = 0; j < count; ++j)
      row[j] /= total;
    normaliser(i, largest + std::log(total));
  }
  return p;
}

template <class C>
void attend_biased(const Matrix& q, const Matrix& k, const Matrix& v, const Matrix& bias, const Matrix& out,
                   const Matrix& logsumexp, C scale) {
  std::vector<C> queries, keys, values, o(q.rows * v.cols, C{0});
  load_rows(queries, q, 0, q.rows);
  load_rows(keys, k, 0, k.rows);
  load_rows(values, v, 0, v.rows);
  const std::vector<C> p = biased_probabilities<C>(
      queries, keys, bias, q.cols, scale,
      [&](std::size_t i, C normaliser) { store_one(logsumexp.at(i, 0), normaliser, logsumexp.dtype); });
  add_product({p.data(), k.rows, 1, values.data(), o.data(), q.rows, v.cols, k.rows});
  store_rows(out, 0, o);
}

template <class C>
void forward_biased(KernelCall& call) {
  const HostView &q = call.in[0], &k = call.in[1], &v = call.in[2], &bias = call.in[3];
  const C scale = scale_of<C>(call, q);
  for (std::uint64_t b = 0; b < q.sizes[0]; ++b) {
    for (std::uint64_t head = 0; head < q.sizes[1]; ++head) {
      attend_biased<C>(matrix_of(q, b, head), matrix_of(k, b, head), matrix_of(v, b, head),
                       matrix_of(bias, bias.sizes[0] == 1 ? 0 : b, 0), matrix_of(call.out[0], b, head),
                       column_of(call.out[1], b, head), scale);
    }
  }
}

template <class C>
void biased_head_backward(const Operands& x, const Matrix& bias, const std::array<Matrix, 3>& out, C scale) {
  const std::size_t s = x.q.rows, c = x.k.rows, d = x.q.cols, width = x.v.cols;
  std::vector<C> queries, keys, values, gradient, result;
  load_rows(queries, x.q, 0, s);
  load_rows(keys, x.k, 0, c);
  load_rows(values, x.v, 0, c);
  load_rows(gradient, x.gradient, 0, s);
  load_rows(result, x.out, 0, s);
  const std::vector<C> p = biased_probabilities<C>(queries, keys, bias, d, scale, [](std::size_t, C) {});
  std::vector<C> ds(s * c, C{0}), dq(s * d, C{0}), dk(c * d, C{0}), dv(c * width, C{0});
  const std::vector<C> columns = transposed(values, c);
  add_product({gradient.data(), width, 1, columns.data(), ds.data(), s, c, width});
  for (std::size_t i = 0; i < s; ++i) {
    C delta = 0;
    for (std::size_t j = 0; j < width; ++j)
      delta += gradient[i * width + j] * result[i * width + j];
    for (std::size_t j = 0; j < c; ++j)
      ds[i * c + j] = p[i * c + j] * (ds[i * c + j] - delta) * scale;
  }
  add_product({p.data(), 1, c, gradient.data(), dv.data(), c, width, s});
  add_product({ds.data(), c, 1, keys.data(), dq.data(), s, d, c});
  add_product({ds.data(), 1, c, queries.data(), dk.data(), c, d, s});
  store_rows(out[0], 0, dq);
  store_rows(out[1], 0, dk);
  store_rows(out[2], 0, dv);
}

template <class C>
void backward_biased(KernelCall& call) {
  const auto& in = call.in;
  const HostView& bias = in[6];
  for (std::uint64_t b = 0; b < in[1].sizes[0]; ++b) {
    for (std::uint64_t head = 0; head < in[1].sizes[1]; ++head) {
      const Operands x{matrix_of(in[0], b, head),
                       matrix_of(in[1], b, head),
                       matrix_of(in[2], b, head),
                       matrix_of(in[3], b, head),
                       matrix_of(in[4], b, head),
                       column_of(in[5], b, head),
                       0};
      biased_head_backward<C>(
          x, matrix_of(bias, bias.sizes[0] == 1 ? 0 : b, 0),
          {matrix_of(call.out[0], b, head), matrix_of(call.out[1], b, head), matrix_of(call.out[2], b, head)},
          scale_of<C>(call, in[1]));
    }
  }
}

}  // namespace

void attention(KernelCall& call) {
  call.error = refusal(call, 0);
  if (call.in.size() == 4 && call.in[0].sizes[1] != call.in[1].sizes[1]) call.error = kBadShapes;
  if (call.error != nullptr) return;
  const bool wide =
      call.in[0].dtype == DType::f64;  // not needs_double(): integers beside the result hold a random state
  if (call.in.size() == 4) return wide ? forward_biased<double>(call) : forward_biased<float>(call);
  if (wide) {
    forward<double>(call);
  } else {
    forward<float>(call);
  }
}

void attention_backward(KernelCall& call) {
  call.error = refusal(call, 1);
  const HostView &q = call.in[1], &k = call.in[2];
  if (call.in.size() == 7 && (q.sizes[1] != k.sizes[1] || q.sizes[2] != k.sizes[2])) call.error = kBadShapes;
  if (call.error != nullptr) return;
  const bool wide = call.in[1].dtype == DType::f64;
  if (call.in.size() == 7) return wide ? backward_biased<double>(call) : backward_biased<float>(call);
  if (wide) {
    backward<double>(call);
  } else {
    backward<float>(call);
  }
}

}  // namespace ledger::host
