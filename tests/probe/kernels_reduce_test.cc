// Sums, means and norms over any set of dimensions.
#include "one_op.h"

namespace ledger::one_op {
namespace {

struct Reduction {
  const char* name;
  Sizes in, out;
};

// The sum by definition: each element of `in` goes to where its index, cut to out's dimensions, points.
std::vector<double> summed(const TestTensor& in, const Sizes& out) {
  std::uint64_t numel = 1;
  for (const std::uint64_t size : out)
    numel *= size;
  std::vector<double> total(numel);
  for (std::uint64_t i = 0; i < in.numel(); ++i) {
    std::uint64_t rest = i, place = 0, stride = 1;
    for (std::size_t back = 1; back <= out.size(); ++back) {
      const std::uint64_t index = rest % in.sizes[in.sizes.size() - back];
      rest /= in.sizes[in.sizes.size() - back];
      if (out[out.size() - back] != 1) place += index * stride;
      stride *= out[out.size() - back];
    }
    total[place] += in[i];
  }
  return total;
}

class ReduceKernels : public testing::TestWithParam<Reduction> {};

INSTANTIATE_TEST_SUITE_P(
    All, ReduceKernels,
    testing::Values(Reduction{"last_kept", {3, 4, 600}, {3, 4, 1}}, Reduction{"all", {3, 4, 5}, {}},
                    Reduction{"leading_dropped", {3, 4, 600}, {600}}, Reduction{"leading_kept", {3, 4, 5}, {1, 1, 5}},
                    Reduction{"middle", {3, 4, 5}, {3, 1, 5}}, Reduction{"dropped_and_kept", {3, 4, 5}, {4, 1}},
                    Reduction{"none", {3, 4, 5}, {3, 4, 5}}, Reduction{"to_one", {7, 9}, {1, 1}}),
    [](const auto& test) { return std::string(test.param.name); });

TEST_P(ReduceKernels, SumsAndMeansAreTheExactOnesRoundedOnce) {
  const Reduction& c = GetParam();
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    for (const TestTensor& in : {random(dtype, c.in), random_reversed(dtype, c.in), random_slice(dtype, c.in)}) {
      std::vector<double> want = summed(in, c.out);
      const TestTensor sum = run_op(OpKind::sum, {in}, {empty(dtype, c.out)})[0];
      expect_near(sum, want, epsilon(dtype) / 2, 1e-12);
      const double count = static_cast<double>(in.numel()) / static_cast<double>(sum.numel());
      for (double& value : want)
        value /= count;
      expect_near(run_op(OpKind::mean, {in}, {empty(dtype, c.out)})[0], want, epsilon(dtype) / 2 * 1.01, 1e-12);
    }
  }
}

TEST(ReduceKernels, CumsumCountsPositions) {
  const TestTensor mask = dense(DType::i64, {2, 4}, {0, 1, 1, 1, 1, 1, 1, 1});
  const TestTensor out = run_op(OpKind::cumsum, {mask}, {empty(DType::i64, {2, 4})})[0];
  EXPECT_EQ(out.values(), (std::vector<double>{0, 1, 2, 3, 1, 2, 3, 4}));
}

TEST(ReduceKernels, ArgmaxTakesTheFirstOfEquals) {
  const TestTensor logits = dense(DType::f32, {3, 4}, {-1, 5, 5, 2, 7, 0, 0, 0, -9, -8, -8.5, -7});
  const TestTensor out = run_op(OpKind::argmax, {logits}, {empty(DType::i64, {3})})[0];
  EXPECT_EQ(out.values(), (std::vector<double>{1, 0, 3}));
}

TEST(ReduceKernels, AnExpandedGradientIsSummedAsOftenAsItIsRepeated) {
  TestTensor in = random(DType::f32, {1, 5});
  in.sizes[0] = 6;
  in.strides[0] = 0;
  const TestTensor sum = run_op(OpKind::sum, {in}, {empty(DType::f32, {5})})[0];
  for (std::uint64_t i = 0; i < 5; ++i)
    EXPECT_EQ(sum[i], rounded_to(DType::f32, 6 * in[i]));
}

TEST(ReduceKernels, VectorNormIsTheEuclideanLength) {
  EXPECT_EQ(run_op(OpKind::vector_norm, {dense(DType::bf16, {2}, {3, 4})}, {empty(DType::bf16, {})})[0][0], 5);
  const TestTensor x = random_slice(DType::f32, {37, 41});
  const double want = std::sqrt(dot(x.values(), x.values()));
  EXPECT_NEAR(run_op(OpKind::vector_norm, {x}, {empty(DType::f32, {})})[0][0], want, 1e-7 * want);
}

TEST(ReduceKernels, RowNormsAreTheNormsOfTheRows) {
  for (const TestTensor& x :
       {random(DType::f32, {5, 700}), random_reversed(DType::f32, {5, 3}), random_slice(DType::f32, {1, 9})}) {
    const TestTensor norms = run_op(OpKind::row_norm, {x}, {empty(DType::f32, {x.sizes[0]})})[0];
    for (std::uint64_t row = 0; row < x.sizes[0]; ++row) {
      double squares = 0;
      for (std::uint64_t i = 0; i < x.sizes[1]; ++i)
        squares += x[row * x.sizes[1] + i] * x[row * x.sizes[1] + i];
      EXPECT_NEAR(norms[row], std::sqrt(squares), 1e-7 * std::sqrt(squares)) << row;
    }
  }
}

}  // namespace
}  // namespace ledger::one_op
