// mm, addmm and bmm against the triple loop, over odd sizes, block borders and transposed, sliced or repeated operands.
#include "one_op.h"

namespace ledger::one_op {
namespace {

struct MatrixSize {
  std::uint64_t m, n, k;
};

const MatrixSize kSizes[] = {{1, 1, 1},      {3, 5, 7},   {8, 32, 256}, {9, 33, 257},  {65, 129, 33},
                             {130, 70, 600}, {513, 5, 3}, {2, 515, 9},  {33, 1, 1025}, {1, 40, 0}};

// Products and sums of the magnitudes, the second to bound rounding.
struct Reference {
  std::vector<double> value, magnitude;
};

Reference multiply(const TestTensor& a, const TestTensor& b) {
  const std::uint64_t m = a.sizes[0], k = a.sizes[1], n = b.sizes[1];
  const std::vector<double> lefts = a.values(), rights = b.values();
  Reference result{std::vector<double>(m * n), std::vector<double>(m * n)};
  for (std::uint64_t i = 0; i < m; ++i) {
    for (std::uint64_t l = 0; l < k; ++l) {
      const double left = lefts[i * k + l];
      const double* right = rights.data() + l * n;
      double* value = result.value.data() + i * n;
      double* magnitude = result.magnitude.data() + i * n;
      for (std::uint64_t j = 0; j < n; ++j) {
        const double product = left * right[j];
        value[j] += product;
        magnitude[j] += std::fabs(product);
      }
    }
  }
  return result;
}

void expect_product(const TestTensor& got, const Reference& want) {
  // Accumulated in fp32 at least: its error in a sum of K terms, and one rounding to the result's dtype.
  const double inner = got.dtype == DType::f64 ? 1e-14 : 1e-6;
  for (std::uint64_t i = 0; i < want.value.size(); ++i) {
    const double tolerance = epsilon(got.dtype) / 2 * std::fabs(want.value[i]) + inner * want.magnitude[i] + 1e-12;
    if (!(std::fabs(got[i] - want.value[i]) <= tolerance))
      FAIL() << "element " << i << ": " << got[i] << ", expected " << want.value[i];
  }
}

class MatrixKernels : public testing::TestWithParam<DType> {};

INSTANTIATE_TEST_SUITE_P(All, MatrixKernels, testing::Values(DType::f64, DType::f32, DType::bf16, DType::f16),
                         [](const auto& test) { return std::string(ledger::info(test.param).name); });

TEST_P(MatrixKernels, MmMatchesTheTripleLoopOnAnyStrides) {
  const DType dtype = GetParam();
  for (const auto& [m, n, k] : kSizes) {
    for (const TestTensor& a : {random(dtype, {m, k}), random_reversed(dtype, {m, k}), random_slice(dtype, {m, k})}) {
      for (const TestTensor& b : {random(dtype, {k, n}), random_reversed(dtype, {k, n}), random_slice(dtype, {k, n})}) {
        expect_product(run_op(OpKind::mm, {a, b}, {empty(dtype, {m, n})})[0], multiply(a, b));
        if (HasFatalFailure()) FAIL() << m << "x" << n << "x" << k;
      }
    }
  }
}

TEST_P(MatrixKernels, MmWritesTransposedOutputs) {
  const DType dtype = GetParam();
  const TestTensor a = random(dtype, {21, 40}), b = random(dtype, {40, 35});
  expect_product(run_op(OpKind::mm, {a, b}, {transpose(empty(dtype, {35, 21}), 0, 1)})[0], multiply(a, b));
}

TEST_P(MatrixKernels, AddmmAddsTheBiasBeforeRounding) {
  const DType dtype = GetParam();
  const TestTensor bias = random(dtype, {35}, -8, 8), a = random(dtype, {21, 300}),
                   b = random_reversed(dtype, {300, 35});
  Reference want = multiply(a, b);
  for (std::uint64_t i = 0; i < want.value.size(); ++i)
    want.value[i] += bias[i % 35];
  expect_product(run_op(OpKind::addmm, {bias, a, b}, {empty(dtype, {21, 35})})[0], want);
}

TEST_P(MatrixKernels, BmmMultipliesEachPair) {
  const DType dtype = GetParam();
  TestTensor a = random(dtype, {1, 9, 17});
  a.sizes[0] = 4;  // the same matrix four times, as expand() does
  a.strides[0] = 0;
  const TestTensor b = transpose(random(dtype, {4, 13, 17}), 1, 2);
  const TestTensor got = run_op(OpKind::bmm, {a, b}, {empty(dtype, {4, 9, 13})})[0];
  for (std::uint64_t i = 0; i < 4; ++i) {
    TestTensor bi = b, gi = got;
    bi.offset += i * 13 * 17;
    gi.offset += i * 9 * 13;
    TestTensor ai = a;
    for (TestTensor* t : {&ai, &bi, &gi}) {
      t->sizes.erase(t->sizes.begin());
      t->strides.erase(t->strides.begin());
    }
    expect_product(gi, multiply(ai, bi));
  }
}

TEST(MatrixKernels, Bf16ProductsAreTheRoundedFp32Ones) {
  const TestTensor a = random(DType::bf16, {40, 700}), b = random(DType::bf16, {700, 30});
  const TestTensor wide = run_op(OpKind::mm, {a, b}, {empty(DType::f32, {40, 30})})[0];
  const TestTensor narrow = run_op(OpKind::mm, {a, b}, {empty(DType::bf16, {40, 30})})[0];
  for (std::uint64_t i = 0; i < narrow.numel(); ++i)
    ASSERT_EQ(narrow[i], rounded_to(DType::bf16, wide[i]));
}

// A row of a product must not depend on its neighbours, or changing one token would change others.
TEST(MatrixKernels, RowsDoNotInfluenceEachOther) {
  TestTensor a = random(DType::f32, {20, 50});
  const TestTensor b = random(DType::f32, {50, 60});
  const TestTensor before = run_op(OpKind::mm, {a, b}, {empty(DType::f32, {20, 60})})[0];
  for (std::size_t i = 0; i < 50; ++i)
    a.memory[7 * 50 + i] = 100;
  const TestTensor after = run_op(OpKind::mm, {a, b}, {empty(DType::f32, {20, 60})})[0];
  for (std::uint64_t i = 0; i < before.numel(); ++i) {
    if (i / 60 != 7) {
      ASSERT_EQ(before[i], after[i]);
    }
  }
}

TEST(MatrixKernels, GradientsOfMmAreProductsWithTransposes) {
  const TestTensor a = random(DType::f64, {6, 11}), b = random(DType::f64, {11, 8}), u = random(DType::f64, {6, 8});
  const auto mm = [](const TestTensor& x, const TestTensor& y) {
    return run_op(OpKind::mm, {x, y}, {empty(DType::f64, {x.sizes[0], y.sizes[1]})})[0];
  };
  expect_gradient([&](const TestTensor& at) { return mm(at, b); }, a, u, mm(u, transpose(b, 0, 1)));
  expect_gradient([&](const TestTensor& at) { return mm(a, at); }, b, u, mm(transpose(a, 0, 1), u));
}

TEST(MatrixKernels, ShapesThatDoNotMatchAreAFailure) {
  const Outcome outcome =
      try_op(OpKind::mm, {random(DType::f32, {3, 4}), random(DType::f32, {5, 6})}, {empty(DType::f32, {3, 6})});
  ASSERT_TRUE(outcome.failure);
  EXPECT_NE(outcome.failure->what.find("shapes"), std::string::npos);
}

}  // namespace
}  // namespace ledger::one_op
