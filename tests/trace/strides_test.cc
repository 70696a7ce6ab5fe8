// ATen's layout rules: which reshapes are views, and in which order element-wise results lie in memory.
#include "core/trace/strides.h"

#include <gtest/gtest.h>

#include "tests/trace/tape_tester.h"

namespace ledger {
namespace {

using Steps = std::vector<std::int64_t>;

// "2,1": strides of the first `rank` dimensions; "copy" when there are none.
std::string written(const std::optional<Strides>& strides, std::size_t rank, const char* otherwise) {
  if (!strides) return otherwise;
  std::string text;
  for (std::size_t i = 0; i < rank; ++i) {
    if (i != 0) text += ",";
    text += std::to_string((*strides)[i]);
  }
  return text;
}

Tensor strided(Tape& tape, const Sizes& sizes, const Steps& steps) {
  Strides strides{};
  std::copy(steps.begin(), steps.end(), strides.begin());
  const Tensor memory = tape.empty(OpKind::zeros, shape_of({4096}), DType::f32);
  return tape.view_of(memory, shape_of(sizes), strides, 0);
}

struct ViewCase {
  const char* name;
  Sizes sizes;
  Steps steps;
  Sizes wanted;
  const char* strides;
};

void PrintTo(const ViewCase& c, std::ostream* out) {
  *out << c.name;
}

class ViewStrides : public testing::TestWithParam<ViewCase> {};

// Expected: torch.empty_strided(sizes, steps).view(wanted).stride(), by hand from TensorUtils.cpp, computeStride.
TEST_P(ViewStrides, AsAten) {
  Tape tape;
  const Shape wanted = shape_of(GetParam().wanted);
  const auto strides = view_strides(strided(tape, GetParam().sizes, GetParam().steps), wanted);
  EXPECT_EQ(written(strides, wanted.rank, "copy"), GetParam().strides);
}

const ViewCase kViewCases[] = {
    {"contiguous_splits", {6, 4}, {4, 1}, {2, 3, 4}, "12,4,1"},
    {"contiguous_merges", {2, 3, 4}, {12, 4, 1}, {24}, "1"},
    {"contiguous_regroups", {6, 4}, {4, 1}, {3, 8}, "8,1"},
    {"heads_back_to_hidden_needs_a_copy",
     {2, 4, 5, 8},
     {160, 8, 32, 1},
     {2, 4, 40},
     "copy"},  // [b,nh,s,d] of [b,s,nh*d]
    {"transposed_heads_are_the_hidden", {2, 5, 4, 8}, {160, 32, 8, 1}, {2, 5, 32}, "160,32,1"},
    {"transposed_matrix_is_no_vector", {3, 2}, {1, 3}, {6}, "copy"},
    {"split_of_a_transposed_dimension", {4, 6}, {1, 4}, {2, 2, 6}, "2,1,4"},
    {"slice_of_columns_keeps_rows", {5, 2}, {6, 1}, {5, 1, 2}, "6,2,1"},
    {"slice_of_columns_is_no_vector", {5, 2}, {6, 1}, {10}, "copy"},
    {"slice_with_one_row_is_a_vector", {1, 2}, {6, 1}, {2}, "1"},
    {"expanded_stays_expanded", {4, 3}, {0, 1}, {2, 2, 3}, "0,0,1"},
    {"expanded_is_no_vector", {4, 3}, {0, 1}, {12}, "copy"},
    {"ones_come_and_go", {2, 1, 3}, {3, 7, 1}, {2, 3, 1}, "3,1,1"},
};

INSTANTIATE_TEST_SUITE_P(Cases, ViewStrides, testing::ValuesIn(kViewCases),
                         [](const auto& row) { return std::string(row.param.name); });

struct OrderCase {
  const char* name;
  Sizes a;
  Steps a_steps;
  Sizes b;  // empty: unary
  Steps b_steps;
  const char* strides;
};

void PrintTo(const OrderCase& c, std::ostream* out) {
  *out << c.name;
}

class ElementwiseStrides : public testing::TestWithParam<OrderCase> {};

// The result has a's shape.
TEST_P(ElementwiseStrides, FollowTheFirstFullOperand) {
  Tape tape;
  const Tensor a = strided(tape, GetParam().a, GetParam().a_steps);
  const Tensor b = strided(tape, GetParam().b, GetParam().b_steps);
  const Shape shape = shape_of(a.shape().numel() >= b.shape().numel() ? GetParam().a : GetParam().b);
  const auto strides = elementwise_strides(shape, a, b.rank() == 0 ? nullptr : &b);
  EXPECT_EQ(written(strides, shape.rank, "contiguous"), GetParam().strides);
}

const OrderCase kOrderCases[] = {
    {"contiguous", {2, 3}, {3, 1}, {}, {}, "contiguous"},
    {"transposed_stays_transposed", {3, 2}, {1, 3}, {}, {}, "1,3"},
    {"heads_stay_as_they_lie", {2, 4, 5, 8}, {160, 8, 32, 1}, {}, {}, "160,8,32,1"},
    {"gaps_are_closed", {5, 2}, {6, 1}, {}, {}, "2,1"},
    {"gaps_are_closed_in_order", {2, 5}, {1, 6}, {}, {}, "1,2"},
    {"first_operand_decides", {3, 2}, {1, 3}, {3, 2}, {2, 1}, "1,3"},
    {"contiguous_first_operand_decides", {3, 2}, {2, 1}, {3, 2}, {1, 3}, "contiguous"},
    {"a_broadcast_operand_does_not", {1, 2}, {2, 1}, {3, 2}, {1, 3}, "1,3"},
    {"an_expanded_operand_gives_no_order", {3, 2}, {0, 1}, {}, {}, "contiguous"},
};

INSTANTIATE_TEST_SUITE_P(Cases, ElementwiseStrides, testing::ValuesIn(kOrderCases),
                         [](const auto& row) { return std::string(row.param.name); });

TEST(Contiguous, DimensionsOfOneMayHaveAnyStride) {
  EXPECT_TRUE(strides_contiguous(shape_of({1, 3}), {77, 1}));
  EXPECT_FALSE(strides_contiguous(shape_of({2, 3}), {77, 1}));
  EXPECT_TRUE(strides_contiguous(Shape{}, {}));
}

}  // namespace
}  // namespace ledger
