#include "probe/host/gemm.h"

#include <algorithm>
#include <array>
#include <vector>

#include "probe/host/strips.h"

namespace ledger::host {
namespace {

constexpr std::size_t kDepth = 256;  // of a packed block: panels of a tile fit the L1 cache
constexpr std::size_t kBlockRows = 512;
constexpr std::size_t kBlockCols = 512;

template <class C>
struct Tile {
  static constexpr std::size_t rows = 8;
  static constexpr std::size_t cols = 128 / sizeof(C);
};

// out[rows][cols] += panel a (depth x Tile::rows) times panel b (depth x Tile::cols), in pieces of Rows x Vectors
// registers of `Width` bytes. GCC spills vectors wider than the machine's, so each instruction set has its own Width.
template <class C, std::size_t Width, std::size_t Rows, std::size_t Vectors>
[[gnu::always_inline]] inline void multiply_tile(const C* a, const C* b, std::size_t depth, C* out,
                                                 std::size_t out_row) {
  typedef C Vector __attribute__((vector_size(Width), aligned(alignof(C)), may_alias));
  constexpr std::size_t kLanes = Width / sizeof(C);
  for (std::size_t col = 0; col < Tile<C>::cols; col += Vectors * kLanes) {
    for (std::size_t row = 0; row < Tile<C>::rows; row += Rows) {
      Vector total[Rows][Vectors] = {};
      const C *ak = a + row, *bk = b + col;
      for (std::size_t k = 0; k < depth; ++k, ak += Tile<C>::rows, bk += Tile<C>::cols) {
        for (std::size_t i = 0; i < Rows; ++i) {
          for (std::size_t v = 0; v < Vectors; ++v)
            total[i][v] += ak[i] * *reinterpret_cast<const Vector*>(bk + v * kLanes);
        }
      }
      for (std::size_t i = 0; i < Rows; ++i) {
        C* to = out + (row + i) * out_row + col;
        for (std::size_t v = 0; v < Vectors; ++v)
          *reinterpret_cast<Vector*>(to + v * kLanes) += total[i][v];
      }
    }
  }
}

template <class C>
[[gnu::always_inline]] inline void add_product_rows(const SmallProduct<C>& p) {
  for (std::size_t i = 0; i < p.rows; ++i) {
    C* out = p.out + i * p.cols;
    for (std::size_t k = 0; k < p.depth; ++k) {
      const C factor = p.a[i * p.a_row + k * p.a_col];
      const C* b = p.b + k * p.cols;
      for (std::size_t j = 0; j < p.cols; ++j)
        out[j] += factor * b[j];
    }
  }
}

// The inner loops for one instruction set. Attributes cannot be template arguments, hence the macro.
template <class C>
struct InnerLoops {
  void (*tile)(const C* a, const C* b, std::size_t depth, C* out, std::size_t out_row);
  void (*small)(const SmallProduct<C>&);
};
#define LEDGER_INNER_LOOPS(name, attribute, width, rows, vectors)                                      \
  template <class C>                                                                                   \
  attribute void tile_##name(const C* a, const C* b, std::size_t depth, C* out, std::size_t out_row) { \
    multiply_tile<C, width, rows, vectors>(a, b, depth, out, out_row);                                 \
  }                                                                                                    \
  template <class C>                                                                                   \
  attribute void small_##name(const SmallProduct<C>& product) {                                        \
    add_product_rows(product);                                                                         \
  }                                                                                                    \
  template <class C>                                                                                   \
  constexpr InnerLoops<C> kLoops_##name = {tile_##name<C>, small_##name<C>};

LEDGER_INNER_LOOPS(baseline, , 16, 4, 2)  // SSE2, NEON
#if defined(__x86_64__)
LEDGER_INNER_LOOPS(avx2, [[gnu::target("avx2,fma")]], 32, 4, 2)
LEDGER_INNER_LOOPS(avx512, [[gnu::target("avx512f,avx512vl,avx512dq,avx2,fma")]], 64, 8, 2)
#endif
#undef LEDGER_INNER_LOOPS

template <class C>
const InnerLoops<C>& inner_loops() {
#if defined(__x86_64__)
  static const InnerLoops<C>& best =
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") ? kLoops_avx512<C>
      : __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")        ? kLoops_avx2<C>
                                                                               : kLoops_baseline<C>;
  return best;
#else
  return kLoops_baseline<C>;
#endif
}

// Lays `count` vectors of length `depth` out as panels of `width`, element k of all of them side by side; the last
// panel is filled up with zeros. Strides of the source: `across` from vector to vector, `along` each of them.
template <class C>
void pack(C* to, std::size_t width, const std::byte* from, std::size_t count, std::ptrdiff_t across, std::size_t depth,
          std::ptrdiff_t along, DType dtype) {
  const bool along_memory = std::abs(along) < std::abs(across);
  std::array<C, kDepth> line;
  for (std::size_t first = 0; first < count; first += width, to += width * depth) {
    const std::size_t here = std::min(width, count - first);
    const std::byte* panel = from + static_cast<std::ptrdiff_t>(first) * across;
    if (here < width) std::fill_n(to, width * depth, C{0});
    if (along_memory) {
      for (std::size_t i = 0; i < here; ++i) {
        load_strip(line.data(), panel + static_cast<std::ptrdiff_t>(i) * across, along, depth, dtype);
        for (std::size_t k = 0; k < depth; ++k)
          to[k * width + i] = line[k];
      }
    } else {
      for (std::size_t k = 0; k < depth; ++k) {
        load_strip(to + k * width, panel + static_cast<std::ptrdiff_t>(k) * along, across, here, dtype);
      }
    }
  }
}

template <class C>
class Multiplication {
 public:
  Multiplication(const Matrix& a, const Matrix& b, const Matrix& out, const Matrix* bias)
      : a_(a), b_(b), out_(out), bias_(bias) {
    const std::size_t rows = round_up(std::min<std::uint64_t>(out.rows, kBlockRows), Tile<C>::rows);
    const std::size_t cols = round_up(std::min<std::uint64_t>(out.cols, kBlockCols), Tile<C>::cols);
    const std::size_t depth = std::min<std::uint64_t>(a.cols, kDepth);
    packed_a_.resize(rows * depth);
    packed_b_.resize(cols * depth);
    total_.resize(rows * cols);
    line_.resize(cols);
  }

  void run() {
    for (std::uint64_t col = 0; col < out_.cols; col += kBlockCols) {
      for (std::uint64_t row = 0; row < out_.rows; row += kBlockRows)
        block(row, col);
    }
  }

 private:
  void block(std::uint64_t row, std::uint64_t col) {
    const std::size_t rows = std::min<std::uint64_t>(kBlockRows, out_.rows - row);
    const std::size_t cols = std::min<std::uint64_t>(kBlockCols, out_.cols - col);
    const std::size_t total_row = round_up(cols, Tile<C>::cols);
    std::fill(total_.begin(), total_.end(), C{0});
    for (std::uint64_t k = 0; k < a_.cols; k += kDepth) {
      const std::size_t depth = std::min<std::uint64_t>(kDepth, a_.cols - k);
      pack(packed_a_.data(), Tile<C>::rows, a_.at(row, k), rows, a_.row_stride, depth, a_.col_stride, a_.dtype);
      pack(packed_b_.data(), Tile<C>::cols, b_.at(k, col), cols, b_.col_stride, depth, b_.row_stride, b_.dtype);
      for (std::size_t j = 0; j < cols; j += Tile<C>::cols) {
        for (std::size_t i = 0; i < rows; i += Tile<C>::rows) {
          loops_.tile(&packed_a_[i * depth], &packed_b_[j * depth], depth, &total_[i * total_row + j], total_row);
        }
      }
    }
    for (std::size_t i = 0; i < rows; ++i)
      store_row(&total_[i * total_row], row + i, col, cols);
  }

  void store_row(C* total, std::uint64_t row, std::uint64_t col, std::size_t cols) {
    if (bias_ != nullptr) {
      load_strip(line_.data(), bias_->at(row, col), bias_->col_stride, cols, bias_->dtype);
      for (std::size_t j = 0; j < cols; ++j)
        total[j] += line_[j];
    }
    store_strip(out_.at(row, col), out_.col_stride, total, cols, out_.dtype);
  }

  const Matrix &a_, &b_, &out_;
  const Matrix* bias_;
  const InnerLoops<C>& loops_ = inner_loops<C>();
  std::vector<C> packed_a_, packed_b_, total_, line_;
};

}  // namespace

template <class C>
void multiply(const Matrix& a, const Matrix& b, const Matrix& out, const Matrix* bias) {
  Multiplication<C>(a, b, out, bias).run();
}

template void multiply<float>(const Matrix&, const Matrix&, const Matrix&, const Matrix*);
template void multiply<double>(const Matrix&, const Matrix&, const Matrix&, const Matrix*);

void add_product(const SmallProduct<float>& product) {
  inner_loops<float>().small(product);
}

void add_product(const SmallProduct<double>& product) {
  inner_loops<double>().small(product);
}

}  // namespace ledger::host
