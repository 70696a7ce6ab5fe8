// Softmax: definition, gradient and what happens to rows without a single visible key.
#include "one_op.h"

namespace ledger::one_op {
namespace {

std::vector<double> softmax(const TestTensor& x) {
  const std::uint64_t width = x.sizes.back();
  std::vector<double> y = x.values();
  for (std::uint64_t row = 0; row < y.size(); row += width) {
    double total = 0;
    for (std::uint64_t i = 0; i < width; ++i)
      total += y[row + i] = std::exp(y[row + i]);
    for (std::uint64_t i = 0; i < width; ++i)
      y[row + i] /= total;
  }
  return y;
}

TestTensor run_softmax(const TestTensor& x) {
  return run_op(OpKind::softmax, {x}, {empty(x.dtype, x.sizes)})[0];
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(SoftmaxKernels, MatchTheirDefinitionOnAnyStrides) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    for (const TestTensor& x : {random(dtype, {5, 701}, -4, 4), random_reversed(dtype, {2, 3, 33}, -4, 4),
                                random_slice(dtype, {2, 2, 3, 9}, -4, 4)}) {
      // x - max is rounded at a size of up to 8, which exp turns into as large a relative error. In fp64 the sum of 701
      // terms has no wider type to be taken in.
      expect_near(run_softmax(x), softmax(x), (dtype == DType::f64 ? 40 : 8) * epsilon(dtype));
    }
  }
}

TEST(SoftmaxKernels, RowsSumToOneForHugeScores) {
  const TestTensor y = run_softmax(dense(DType::f32, {1, 3}, {3e4, 3e4, -kInfinity}));
  EXPECT_EQ(y.values(), (std::vector<double>{0.5, 0.5, 0}));
}

// Of [.., queries, keys] each query sees the keys up to its own place.
TEST(SoftmaxKernels, CausalRowsEndAtTheirQuery) {
  const TestTensor y = run_op(OpKind::softmax,
                              {dense(DType::f64, {2, 3, 3},
                                     {7, 9, 9, 1, 1, 9, 0, 0, std::log(4.0),  //
                                      2, 9, 9, 3, 3, 9, 0, 0, std::log(4.0)})},
                              {empty(DType::f64, {2, 3, 3})}, {0.5, {1, 0}})[0];
  const std::vector<double> head = {1, 0, 0, 0.5, 0.5, 0, 0.25, 0.25, 0.5};
  for (std::size_t i = 0; i < 18; ++i)
    EXPECT_NEAR(y.values()[i], head[i % 9], 1e-15) << i;
}

TEST(SoftmaxKernels, CausalBackwardIsTheGradient) {
  const TestTensor x = random(DType::f64, {2, 4, 4}, -3, 3), u = random_reversed(DType::f64, {2, 4, 4});
  const auto causal = [](const TestTensor& of) {
    return run_op(OpKind::softmax, {of}, {empty(of.dtype, of.sizes)}, {0.7, {1, 0}})[0];
  };
  const TestTensor gradient =
      run_op(OpKind::softmax_backward, {u, causal(x)}, {empty(DType::f64, {2, 4, 4})}, {0.7, {1, 0}})[0];
  expect_gradient(causal, x, u, gradient);
}

TEST(SoftmaxKernels, BackwardIsTheGradient) {
  const TestTensor x = random(DType::f64, {4, 13}, -3, 3), u = random_reversed(DType::f64, {4, 13});
  const TestTensor gradient = run_op(OpKind::softmax_backward, {u, run_softmax(x)}, {empty(DType::f64, {4, 13})})[0];
  expect_gradient(run_softmax, x, u, gradient);
}

// torch.softmax gives NaN there, and _safe_softmax (aten/src/ATen/native/transformers/attention.cpp) clears it.
TEST(SoftmaxKernels, AWhollyMaskedRowIsNaNUntilItIsCleared) {
  const TestTensor x = dense(DType::f32, {2, 2}, {-kInfinity, -kInfinity, -kInfinity, 1});
  const TestTensor y = run_softmax(x);
  EXPECT_TRUE(std::isnan(y[0]) && std::isnan(y[1]));
  const TestTensor masked = run_op(OpKind::is_masked, {x}, {empty(DType::boolean, {2, 2})})[0];
  EXPECT_EQ(masked.values(), (std::vector<double>{1, 1, 1, 0}));
  const TestTensor rows = run_op(OpKind::all, {masked}, {empty(DType::boolean, {2, 1})})[0];
  EXPECT_EQ(rows.values(), (std::vector<double>{1, 0}));
  const TestTensor cleared = run_op(OpKind::zero_masked_rows, {rows, y}, {empty(DType::f32, {2, 2})})[0];
  EXPECT_EQ(cleared.values(), (std::vector<double>{0, 0, 0, 1}));
}

TEST(MaskKernels, AQuerySeesItselfAndWhatIsBefore) {
  const TestTensor mask = run_op(OpKind::causal_mask, {}, {empty(DType::boolean, {2, 1, 3, 4})})[0];
  for (std::uint64_t i = 0; i < mask.numel(); ++i)
    EXPECT_EQ(mask[i], i % 4 <= i / 4 % 3 ? 1 : 0) << i;
}

// Two queries behind three earlier keys, of which a window of two shows one: the token before the query's own.
TEST(MaskKernels, KeysBeforeTheQueriesAreSeenAsFarAsAWindowReaches) {
  const auto mask = [](std::int64_t before, std::int64_t window) {
    return run_op(OpKind::causal_mask, {}, {empty(DType::boolean, {1, 1, 2, 6})}, {0, {before, window}})[0].values();
  };
  EXPECT_EQ(mask(3, 0), (std::vector<double>{1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1, 0}));
  EXPECT_EQ(mask(3, 2), (std::vector<double>{0, 0, 1, 1, 0, 0, 0, 0, 0, 1, 1, 0}));
  EXPECT_EQ(mask(0, 2), (std::vector<double>{1, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0}));
}

struct Lowest {
  DType dtype;
  double value;  // torch.finfo(dtype).min
};

TEST(MaskKernels, HiddenKeysGetTheLowestNumberOfTheDtypeOrInfinity) {
  const TestTensor mask = transpose(dense(DType::boolean, {2, 2}, {1, 1, 0, 1}), 0, 1);
  for (const Lowest& c : {Lowest{DType::f64, -1.7976931348623157e308}, Lowest{DType::f32, -3.4028234663852886e38},
                          Lowest{DType::bf16, -3.3895313892515355e38}, Lowest{DType::f16, -65504}}) {
    for (const double infinite : {0.0, 1.0}) {
      const TestTensor added = run_op(OpKind::additive_mask, {mask}, {empty(c.dtype, {2, 2})}, {infinite, {}})[0];
      EXPECT_EQ(added.values(), (std::vector<double>{0, infinite != 0 ? -kInfinity : c.value, 0, 0}));
    }
  }
}

TEST(MaskKernels, AllHoldsAlongTheLastDimensionOnly) {
  const TestTensor x = transpose(dense(DType::boolean, {3, 2}, {1, 1, 0, 1, 1, 1}), 0, 1);  // [2,3]: 1 0 1; 1 1 1
  EXPECT_EQ(run_op(OpKind::all, {x}, {empty(DType::boolean, {2, 1})})[0].values(), (std::vector<double>{0, 1}));
}

}  // namespace
}  // namespace ledger::one_op
