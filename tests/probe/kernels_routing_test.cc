// Experts chosen for tokens, tokens sorted by expert, and products group by group.
#include "one_op.h"

namespace ledger::one_op {
namespace {

TEST(RoutingKernels, TopkIsOrderedAndTakesTheFirstOfEquals) {
  const TestTensor x = dense(DType::f32, {2, 4}, {0.1, 0.4, 0.4, 0.1, 3, 1, 2, 4});
  const auto out = run_op(OpKind::topk, {x}, {empty(DType::f32, {2, 3}), empty(DType::i64, {2, 3})}, {0, {3, 0}});
  EXPECT_EQ(out[1].values(), (std::vector<double>{1, 2, 0, 3, 0, 2}));
  EXPECT_EQ(out[0].values(), dense(DType::f32, {6}, {0.4, 0.4, 0.1, 4, 3, 2}).values());
}

TEST(RoutingKernels, TopkBackwardPutsGradientsBackAndZeroesTheRest) {
  const TestTensor gradient = dense(DType::f32, {2, 2}, {1, 2, 3, 4});
  const TestTensor places = dense(DType::i64, {2, 2}, {2, 0, 1, 2});
  const TestTensor out = run_op(OpKind::topk_backward, {gradient, places}, {empty(DType::f32, {2, 3})})[0];
  EXPECT_EQ(out.values(), (std::vector<double>{2, 0, 1, 0, 3, 4}));
}

TEST(RoutingKernels, LargestOfARow) {
  const TestTensor x = dense(DType::f32, {2, 3}, {1, 5, 5, -3, -1, -2});
  const auto out = run_op(OpKind::max_last, {x}, {empty(DType::f32, {2, 1}), empty(DType::i64, {2, 1})}, {0, {1, 0}});
  EXPECT_EQ(out[0].values(), (std::vector<double>{5, -1}));
  EXPECT_EQ(out[1].values(), (std::vector<double>{1, 1}));
}

TEST(RoutingKernels, GatherAndScatterGoByPlace) {
  const TestTensor x = dense(DType::f32, {2, 3}, {1, 2, 3, 4, 5, 6});
  const TestTensor places = dense(DType::i64, {2, 2}, {2, 0, 1, 2});
  EXPECT_EQ(run_op(OpKind::gather, {x, places}, {empty(DType::f32, {2, 2})})[0].values(),
            (std::vector<double>{3, 1, 5, 6}));
  EXPECT_EQ(run_op(OpKind::scatter_value, {places}, {x}, {9, {}})[0].values(), (std::vector<double>{9, 2, 9, 4, 9, 9}));
}

TEST(RoutingKernels, LogicalNot) {
  const TestTensor flags = dense(DType::boolean, {3}, {1, 0, 1});
  EXPECT_EQ(run_op(OpKind::logical_not, {flags}, {empty(DType::boolean, {3})})[0].values(),
            (std::vector<double>{0, 1, 0}));
}

TEST(ClampKernels, OneSideOrBoth) {
  const TestTensor x = dense(DType::f32, {4}, {-9, -1, 2, 9});
  const auto values = [&](OpKind op, DType dtype, std::int64_t both) {
    return run_op(op, {x}, {empty(dtype, {4})}, {7, {both, 0}})[0].values();
  };
  EXPECT_EQ(values(OpKind::clamp_max, DType::f32, 0), (std::vector<double>{-9, -1, 2, 7}));
  EXPECT_EQ(values(OpKind::clamp_max, DType::f32, 1), (std::vector<double>{-7, -1, 2, 7}));
  EXPECT_EQ(values(OpKind::outside, DType::boolean, 0), (std::vector<double>{0, 0, 0, 1}));
  EXPECT_EQ(values(OpKind::outside, DType::boolean, 1), (std::vector<double>{1, 0, 0, 1}));
}

TEST(ComplexKernels, ProductsAndConjugates) {
  const TestTensor a = dense(DType::f64, {2, 2}, {1, 2, 3, 4}), b = dense(DType::f64, {1, 2}, {5, 6});
  const auto product = [&](std::int64_t conjugate) {
    return run_op(OpKind::complex_mul, {a, b}, {empty(DType::f64, {2, 2})}, {0, {conjugate, 0}})[0].values();
  };
  EXPECT_EQ(product(0), (std::vector<double>{-7, 16, -9, 38}));
  EXPECT_EQ(product(1), (std::vector<double>{17, 4, 39, 2}));
  const TestTensor angles = dense(DType::f64, {1, 1}, {0});
  EXPECT_EQ(run_op(OpKind::polar, {angles}, {empty(DType::f64, {1, 2})})[0].values(), (std::vector<double>{1, 0}));
}

TEST(RoutingKernels, SortKeepsTheOrderOfEquals) {
  const TestTensor experts = dense(DType::i64, {6}, {2, 0, 2, 1, 0, 1});
  const auto out = run_op(OpKind::sort, {experts}, {empty(DType::i64, {6}), empty(DType::i64, {6})});
  EXPECT_EQ(out[0].values(), (std::vector<double>{0, 0, 1, 1, 2, 2}));
  EXPECT_EQ(out[1].values(), (std::vector<double>{1, 4, 3, 5, 0, 2}));
}

TEST(RoutingKernels, WholeNumbers) {
  const TestTensor x = dense(DType::i64, {5}, {0, 1, 2, 3, 7});
  EXPECT_EQ(run_op(OpKind::floor_divide, {x}, {empty(DType::i64, {5})}, {0, {2, 0}})[0].values(),
            (std::vector<double>{0, 0, 1, 1, 3}));
  EXPECT_EQ(run_op(OpKind::remainder, {x}, {empty(DType::i64, {5})}, {0, {3, 0}})[0].values(),
            (std::vector<double>{0, 1, 2, 0, 1}));
  EXPECT_EQ(run_op(OpKind::at_least, {x}, {empty(DType::boolean, {5})}, {0, {3, 0}})[0].values(),
            (std::vector<double>{0, 0, 0, 1, 1}));
  const TestTensor experts = dense(DType::i32, {5}, {0, 3, 3, 1, 4});
  EXPECT_EQ(run_op(OpKind::histc, {experts}, {empty(DType::i32, {4})})[0].values(), (std::vector<double>{1, 1, 0, 2}))
      << "what lies beyond the last bin is not counted";
}

// Three places of two sequences, two experts each: every expert of three gets as many tokens, in both sequences alike.
TEST(RoutingKernels, ExpertsInTurn) {
  EXPECT_EQ(run_op(OpKind::experts_in_turn, {}, {empty(DType::i64, {6, 2})}, {0, {3, 2}})[0].values(),
            (std::vector<double>{0, 1, 0, 1, 2, 0, 2, 0, 1, 2, 1, 2}));
}

TEST(RoutingKernels, IndexPutUndoesAnOrder) {
  const TestTensor order = dense(DType::i64, {4}, {2, 0, 3, 1});
  const TestTensor places = dense(DType::i64, {4}, {0, 1, 2, 3});
  const TestTensor inverse = run_op(OpKind::index_put, {places, order}, {empty(DType::i64, {4})})[0];
  EXPECT_EQ(inverse.values(), (std::vector<double>{1, 3, 0, 2}));
}

TEST(RoutingKernels, MaskedFillBroadcasts) {
  const TestTensor x = dense(DType::f32, {2, 2}, {1, 2, 3, 4});
  const TestTensor mask = dense(DType::boolean, {2, 1}, {0, 1});
  const TestTensor out = run_op(OpKind::masked_fill, {x, mask}, {empty(DType::f32, {2, 2})}, {-1, {}})[0];
  EXPECT_EQ(out.values(), (std::vector<double>{1, 2, -1, -1}));
}

TEST(SinusoidKernels, SinesThenCosines) {
  const std::vector<double> table = run_op(OpKind::sinusoids, {}, {empty(DType::f32, {3, 4})})[0].values();
  EXPECT_EQ(std::vector<double>(table.begin(), table.begin() + 4), (std::vector<double>{0, 0, 1, 1}));
  EXPECT_NEAR(table[8], std::sin(2.0), 1e-6);
  EXPECT_NEAR(table[9], std::sin(0.02), 1e-6);
  EXPECT_NEAR(table[11], std::cos(0.02), 1e-6);
}

TEST(MaskKernels, ChunksSeeNoOther) {
  const auto mask = run_op(OpKind::causal_mask, {}, {empty(DType::boolean, {4, 4})}, {0, {0, -2}})[0].values();
  EXPECT_EQ(mask, (std::vector<double>{1, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 0, 0, 0, 1, 1}));
}

TEST(AlibiKernels, SlopesOfAPowerOfTwoAndOfOtherNumbers) {
  const auto slopes = [](std::uint64_t heads) {
    return run_op(OpKind::alibi_slopes, {}, {empty(DType::f32, {heads})})[0].values();
  };
  EXPECT_EQ(slopes(8), (std::vector<double>{0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625}));
  const std::vector<double> six = slopes(6);
  EXPECT_EQ(std::vector<double>(six.begin(), six.begin() + 4),
            (std::vector<double>{0.25, 0.0625, 0.015625, 0.00390625}));
  EXPECT_EQ(six[4], 0.5) << "every other slope of the next power of two";
  EXPECT_EQ(six[5], 0.125);
}

TEST(MatrixKernels, BaddbmmScalesTheProductAlone) {
  const TestTensor added = dense(DType::f64, {1, 1, 2}, {10, 20});
  const TestTensor a = dense(DType::f64, {2, 1, 2}, {1, 2, 3, 4}),
                   b = dense(DType::f64, {2, 2, 2}, {1, 0, 0, 1, 2, 0, 0, 2});
  const TestTensor out = run_op(OpKind::baddbmm, {added, a, b}, {empty(DType::f64, {2, 1, 2})}, {0.5, {}})[0];
  EXPECT_EQ(out.values(), (std::vector<double>{10.5, 21, 13, 24}));
}

// Rows `first` to `end` of a matrix.
TestTensor rows(const TestTensor& m, std::uint64_t first, std::uint64_t end) {
  TestTensor part = m;
  part.sizes[0] = end - first;
  part.offset += first * static_cast<std::uint64_t>(m.strides[0]);
  return part;
}

TEST(RoutingKernels, GroupedProductsAreProductsOfEachGroup) {
  const TestTensor x = random(DType::f64, {7, 3}), w = random(DType::f64, {3, 3, 4});
  const TestTensor ends = dense(DType::i32, {3}, {2, 2, 7});  // the second group is empty
  const TestTensor out = run_op(OpKind::grouped_mm, {x, w, ends}, {empty(DType::f64, {7, 4})})[0];
  std::vector<double> expected;
  std::uint64_t first = 0;
  for (std::uint64_t group = 0; group < 3; ++group) {
    const auto end = static_cast<std::uint64_t>(ends[group]);
    TestTensor weight = w;
    weight.sizes = {3, 4};
    weight.strides = {4, 1};
    weight.offset = 12 * group;
    if (end == first) continue;
    const TestTensor part = run_op(OpKind::mm, {rows(x, first, end), weight}, {empty(DType::f64, {end - first, 4})})[0];
    for (const double value : part.values())
      expected.push_back(value);
    first = end;
  }
  EXPECT_EQ(out.values(), expected);
}

TEST(RoutingKernels, GroupsOfTheInnerDimensionGiveAMatrixEach) {
  const TestTensor a = random(DType::f64, {2, 5}), b = random(DType::f64, {5, 3});
  const TestTensor ends = dense(DType::i32, {3}, {1, 1, 5});
  const TestTensor out = run_op(OpKind::grouped_mm, {a, b, ends}, {empty(DType::f64, {3, 2, 3})})[0];
  const auto product = [&](std::uint64_t first, std::uint64_t end, std::uint64_t i, std::uint64_t j) {
    double sum = 0;
    for (std::uint64_t k = first; k < end; ++k)
      sum += a[i * 5 + k] * b[k * 3 + j];
    return sum;
  };
  for (std::uint64_t i = 0; i < 2; ++i) {
    for (std::uint64_t j = 0; j < 3; ++j) {
      EXPECT_NEAR(out[i * 3 + j], product(0, 1, i, j), 1e-14);
      EXPECT_EQ(out[6 + i * 3 + j], 0) << "no token went to this expert";
      EXPECT_NEAR(out[12 + i * 3 + j], product(1, 5, i, j), 1e-14);
    }
  }
}

}  // namespace
}  // namespace ledger::one_op
