// Patches, pooling, and rows that stand for images.
#include <cmath>

#include "core/trace/window_grid.h"
#include "one_op.h"

namespace ledger::one_op {
namespace {

using Values = std::vector<double>;

TestTensor counted(DType dtype, const Sizes& sizes) {
  TestTensor t = dense(dtype, sizes, {});
  t.memory.resize(t.numel());
  for (std::size_t i = 0; i < t.memory.size(); ++i)
    t.memory[i] = static_cast<double>(i);
  return t;
}

// Two filters of 2 by 2 over one image of 4 by 5: its last column is in no patch.
TEST(ImageKernels, AFilterMeetsEveryPatchOnce) {
  const TestTensor image = counted(DType::f32, {1, 1, 4, 5});
  const TestTensor filters = dense(DType::f32, {2, 1, 2, 2}, {1, 0, 0, 1, 0, 0, 0, -1});
  const TestTensor bias = dense(DType::f32, {2}, {0, 100});
  const TestTensor y = run_op(OpKind::convolution, {image, filters, bias}, {empty(DType::f32, {1, 2, 2, 2})})[0];
  EXPECT_EQ(y.values(), (Values{0 + 6, 2 + 8, 10 + 16, 12 + 18, 100 - 6, 100 - 8, 100 - 16, 100 - 18}));
  const TestTensor gradient = dense(DType::f32, {1, 2, 2, 2}, {1, 0, 0, 0, 0, 0, 0, 2});
  const auto back = run_op(OpKind::convolution_backward, {gradient, image, filters},
                           {empty(DType::f32, {2, 1, 2, 2}), empty(DType::f32, {2})});
  EXPECT_EQ(back[0].values(), (Values{0, 1, 5, 6, 24, 26, 34, 36}));
  EXPECT_EQ(back[1].values(), (Values{1, 2}));
}

TEST(ImageKernels, RowsGoWhereTheMaskHoldsAndComeBack) {
  const TestTensor words = counted(DType::f32, {2, 3, 2});
  const TestTensor mask = dense(DType::boolean, {2, 3, 1}, {0, 1, 1, 0, 0, 1});
  const TestTensor seen = dense(DType::f32, {3, 2}, {-1, -2, -3, -4, -5, -6});
  const TestTensor joined = run_op(OpKind::masked_scatter, {words, mask, seen}, {empty(DType::f32, {2, 3, 2})})[0];
  EXPECT_EQ(joined.values(), (Values{0, 1, -1, -2, -3, -4, 6, 7, 8, 9, -5, -6}));
  EXPECT_EQ(run_op(OpKind::masked_select, {joined, mask}, {empty(DType::f32, {3, 2})})[0].values(), seen.values());
  const TestTensor few = dense(DType::f32, {2, 2}, {1, 2, 3, 4});
  EXPECT_TRUE(try_op(OpKind::masked_scatter, {words, mask, few}, {empty(DType::f32, {2, 3, 2})}).failure);
}

// What is left over at the right belongs to no square.
TEST(ImageKernels, SquaresBecomeTheirMeans) {
  const TestTensor image = counted(DType::f32, {1, 1, 2, 5});
  const TestTensor means = run_op(OpKind::avg_pool, {image}, {empty(DType::f32, {1, 1, 1, 2})}, {0, {2, 0}})[0];
  EXPECT_EQ(means.values(), (Values{3, 5}));
  const TestTensor back = run_op(OpKind::avg_pool_backward, {means}, {empty(DType::f32, {1, 1, 2, 5})}, {0, {2, 0}})[0];
  EXPECT_EQ(back.values(), (Values{0.75, 0.75, 1.25, 1.25, 0, 0.75, 0.75, 1.25, 1.25, 0}));
}

TEST(ImageKernels, ImagesAreNumberedInEveryRow) {
  const TestTensor mask = dense(DType::boolean, {2, 5}, {1, 1, 0, 1, 0, 0, 0, 1, 1, 1});
  const TestTensor blocks = run_op(OpKind::image_blocks, {mask}, {empty(DType::i64, {2, 5})})[0];
  EXPECT_EQ(blocks.values(), (Values{0, 0, -1, 1, -1, -1, -1, 0, 0, 0}));
}

TEST(ImageKernels, TokensOfAnImageSeeEachOtherBothWays) {
  const TestTensor blocks = dense(DType::i64, {1, 4}, {-1, 0, 0, -1});
  const auto seen = [&](std::int64_t window) {
    return run_op(OpKind::causal_mask, {blocks}, {empty(DType::boolean, {1, 1, 4, 4})}, {0, {0, window}})[0].values();
  };
  EXPECT_EQ(seen(0), (Values{1, 0, 0, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 1}));
  EXPECT_EQ(seen(1), (Values{1, 0, 0, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 0, 0, 1})) << "a window does not part an image";
}

// Two images of 3 by 5 tokens, in windows of 2 by 2: the last column's and row's are narrower.
TEST(ImageKernels, TokensOfAWindowStandTogether) {
  const Attr attr = WindowGrid{.rows = 3, .columns = 5, .side = 2, .unit = 4}.attr();
  const Values order{0, 1, 5, 6, 2, 3, 7, 8, 4, 9, 10, 11, 12, 13, 14};
  const auto run = [&](double back) {
    Attr said = attr;
    said.x = back;
    return run_op(OpKind::window_order, {}, {empty(DType::i64, {30})}, said)[0].values();
  };
  const Values together = run(0), back = run(1);
  for (std::size_t i = 0; i < 30; ++i) {
    EXPECT_EQ(together[i], order[i % 15] + (i < 15 ? 0 : 15)) << i;
    EXPECT_EQ(back[static_cast<std::size_t>(together[i])], static_cast<double>(i));
  }
  EXPECT_EQ(WindowGrid::of(attr).pieces(), (std::vector<std::uint64_t>{16, 16, 8, 8, 8, 4}));
}

// Attention by windows is attention of each window's places.
TEST(ImageKernels, PiecesOfASequenceDoNotSeeEachOther) {
  const WindowGrid grid{.rows = 1, .columns = 3, .side = 2, .unit = 1};
  const TestTensor q = counted(DType::f64, {1, 1, 6, 2}), v = counted(DType::f64, {1, 1, 6, 2});
  TestTensor k = q;
  for (double& value : k.memory)
    value = 1 / (1 + value);
  const auto run = [&](OpKind op, const TestTensor& a, const TestTensor& b, const TestTensor& c, const Attr& attr) {
    const std::uint64_t places = a.sizes[2];
    return run_op(op, {a, b, c},
                  {empty(DType::f64, {1, 1, places, 2}), empty(DType::f32, {1, 1, places}), empty(DType::u8, {16}),
                   empty(DType::u8, {8})},
                  attr)[0]
        .values();
  };
  const TestTensor ends = dense(DType::i32, {5}, {0, 2, 3, 5, 6});
  const Values packed =
      run_op(OpKind::packed_attention, {q, k, v, ends},
             {empty(DType::f64, {1, 1, 6, 2}), empty(DType::f32, {1, 1, 6}), empty(DType::i64, {2})}, grid.attr())[0]
          .values();
  Values apart;
  for (const auto& [first, count] : {std::pair{0u, 2u}, {2u, 1u}, {3u, 2u}, {5u, 1u}}) {
    const auto cut = [&, first = first, count = count](const TestTensor& x) {
      const auto begin = x.memory.begin() + 2 * first;
      return dense(DType::f64, {1, 1, count, 2}, Values(begin, begin + 2 * count));
    };
    for (const double value : run(OpKind::flash_attention, cut(q), cut(k), cut(v), {0, {0, 1}}))
      apart.push_back(value);
  }
  EXPECT_EQ(packed, apart);
}

TEST(ImageKernels, SquaresBecomeColumns) {
  const TestTensor image = counted(DType::f32, {1, 2, 2, 4});
  const TestTensor columns = run_op(OpKind::unfold, {image}, {empty(DType::f32, {1, 8, 2})}, {0, {2, 0}})[0];
  EXPECT_EQ(columns.values(), (Values{0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15}));
}

// Two by two places and a class token, two angles each: by column and by row.
TEST(ImageKernels, PlacesTurnByColumnAndRow) {
  const TestTensor turns = run_op(OpKind::image_turns, {}, {empty(DType::f32, {1, 5, 1, 4})}, {100, {2, 0}})[0];
  const double angles[] = {1, 1, 2, 1, 1, 2, 2, 2, 0, 0};
  for (std::size_t i = 0; i < 10; ++i) {
    EXPECT_NEAR(turns[2 * i], std::cos(angles[i]), 1e-6) << i;
    EXPECT_NEAR(turns[2 * i + 1], std::sin(angles[i]), 1e-6) << i;
  }
}

TEST(ImageKernels, ARowBeginsWithItsImages) {
  Trace trace;
  trace.vocab_size = 7;
  const Attr two_of_three{0, {(std::int64_t{2} << 32) + 3, 4}};
  const TestTensor ids = run_op(OpKind::load_tokens, {}, {empty(DType::i64, {9, 12})}, two_of_three, trace)[0];
  for (std::uint64_t i = 0; i < ids.numel(); ++i) {
    const std::uint64_t place = i % 12;
    EXPECT_EQ(ids[i] == 4, place < 8 && place % 4 != 0) << i;
    EXPECT_LT(ids[i], 7);
  }
}

}  // namespace
}  // namespace ledger::one_op
