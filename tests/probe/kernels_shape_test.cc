// Joins, padding and table look-ups.
#include "one_op.h"

namespace ledger::one_op {
namespace {

TEST(ShapeKernels, CatPutsPartsOneAfterAnotherAlongItsDimension) {
  const TestTensor a = random_reversed(DType::bf16, {2, 3, 4}), b = random_slice(DType::bf16, {2, 5, 4});
  const TestTensor out = run_op(OpKind::cat, {a, b}, {empty(DType::bf16, {2, 8, 4})}, {0, {1, 0}})[0];
  for (std::uint64_t i = 0; i < 2; ++i) {
    for (std::uint64_t j = 0; j < 8; ++j) {
      for (std::uint64_t k = 0; k < 4; ++k) {
        EXPECT_EQ(out[(i * 8 + j) * 4 + k], j < 3 ? a[(i * 3 + j) * 4 + k] : b[(i * 5 + j - 3) * 4 + k]);
      }
    }
  }
}

TEST(ShapeKernels, CatTakesNegativeDimensions) {
  const TestTensor a = random(DType::f32, {3, 2}), b = random(DType::f32, {3, 2});
  const TestTensor out = run_op(OpKind::cat, {a, b}, {empty(DType::f32, {3, 4})}, {0, {-1, 0}})[0];
  EXPECT_EQ(out[1], a[1]);
  EXPECT_EQ(out[2], b[0]);
  EXPECT_EQ(out[11], b[5]);
}

TEST(ShapeKernels, PadRightAddsOneColumn) {
  const TestTensor labels = dense(DType::i64, {2, 3}, {1, 2, 3, 4, 5, 6});
  const TestTensor out = run_op(OpKind::pad_right, {labels}, {empty(DType::i64, {2, 4})}, {0, {-100, 0}})[0];
  EXPECT_EQ(out.memory, (std::vector<double>{1, 2, 3, -100, 4, 5, 6, -100}));
}

TEST(ShapeKernels, PadRightAddsAsManyColumnsAsTheResultHasMore) {
  const TestTensor bias = dense(DType::f32, {2, 1, 2}, {1, 2, 3, 4});
  const TestTensor out = run_op(OpKind::pad_right, {bias}, {empty(DType::f32, {2, 1, 4})}, {0, {0, 0}})[0];
  EXPECT_EQ(out.memory, (std::vector<double>{1, 2, 0, 0, 3, 4, 0, 0}));
}

TEST(ShapeKernels, CatJoinsALayersCacheAlongItsTokens) {
  const TestTensor old = random(DType::bf16, {2, 3, 4, 5}), fresh = transpose(random(DType::bf16, {2, 1, 3, 5}), 1, 2);
  const TestTensor out = run_op(OpKind::cat, {old, fresh}, {empty(DType::bf16, {2, 3, 5, 5})}, {0, {2, 0}})[0];
  for (std::uint64_t i = 0; i < out.numel(); ++i) {
    const std::uint64_t d = i % 5, token = i / 5 % 5, head = i / 25;
    EXPECT_EQ(out[i], token < 4 ? old[(head * 4 + token) * 5 + d] : fresh[head * 5 + d]) << i;
  }
  EXPECT_EQ(run_op(OpKind::cat, {fresh}, {empty(DType::bf16, {2, 3, 1, 5})}, {0, {2, 0}})[0].values(), fresh.values());
}

TEST(ShapeKernels, StackCollectsScalars) {
  const TestTensor out =
      run_op(OpKind::stack, {filled(DType::f32, {}, 2), filled(DType::f32, {}, 3)}, {empty(DType::f32, {2})})[0];
  EXPECT_EQ(out.memory, (std::vector<double>{2, 3}));
}

TEST(ShapeKernels, EmbeddingCopiesRows) {
  const TestTensor table = random(DType::bf16, {11, 6}), ids = random_ids({3, 4}, 11);
  const TestTensor out = run_op(OpKind::embedding, {table, ids}, {empty(DType::bf16, {3, 4, 6})})[0];
  for (std::uint64_t i = 0; i < out.numel(); ++i) {
    EXPECT_EQ(out[i], table[static_cast<std::uint64_t>(ids[i / 6]) * 6 + i % 6]);
  }
}

TEST(ShapeKernels, EmbeddingBackwardSumsTheGradientsOfEachId) {
  const TestTensor ids = dense(DType::i64, {2, 3}, {4, 1, 4, 4, 0, 1});
  const TestTensor gradient = transpose(random(DType::bf16, {2, 5, 3}), 1, 2);
  const TestTensor out = run_op(OpKind::embedding_backward, {gradient, ids}, {empty(DType::bf16, {6, 5})})[0];
  for (std::uint64_t id = 0; id < 6; ++id) {
    for (std::uint64_t j = 0; j < 5; ++j) {
      double want = 0;
      for (std::uint64_t t = 0; t < 6; ++t)
        want += ids[t] == static_cast<double>(id) ? gradient[t * 5 + j] : 0;
      EXPECT_EQ(out[id * 5 + j], rounded_to(DType::bf16, want)) << "one rounding, after the sum";
    }
  }
}

TEST(ShapeKernels, EmbeddingBackwardIsTheGradientOfEmbedding) {
  const TestTensor table = random(DType::f64, {7, 5}), ids = random_ids({4, 6}, 7), u = random(DType::f64, {4, 6, 5});
  const TestTensor gradient = run_op(OpKind::embedding_backward, {u, ids}, {empty(DType::f64, {7, 5})})[0];
  expect_gradient(
      [&](const TestTensor& at) {
        return run_op(OpKind::embedding, {at, ids}, {empty(DType::f64, {4, 6, 5})})[0];
      },
      table, u, gradient);
}

TEST(ShapeKernels, IdsOutsideTheTableAreAFailure) {
  for (const double id : {-1.0, 5.0}) {
    const TestTensor table = random(DType::f32, {5, 2}), ids = filled(DType::i64, {1}, id);
    EXPECT_TRUE(try_op(OpKind::embedding, {table, ids}, {empty(DType::f32, {1, 2})}).failure);
    EXPECT_TRUE(
        try_op(OpKind::embedding_backward, {random(DType::f32, {1, 2}), ids}, {empty(DType::f32, {5, 2})}).failure);
  }
}

}  // namespace
}  // namespace ledger::one_op
