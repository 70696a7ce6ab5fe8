// Where layouts decide memory: a reshape copies only when strides leave no other way, and gradients keep the layout of
// the operators they come from.
#include <gtest/gtest.h>

#include "tests/trace/tape_tester.h"

namespace ledger {
namespace {

const Shape kHidden = {{2, Sym::b}, {5, Sym::s}, {32, Sym::h}};              // [b, s, nh*d]
const Shape kSplit = {{2, Sym::b}, {5, Sym::s}, {4, Sym::nh}, {8, Sym::d}};  // [b, s, nh, d]
constexpr Bytes kBytes = 2 * 5 * 32 * 4;

Tensor heads(const Tensor& x) {
  return transpose(view(x, kSplit), 1, 2);  // [b, nh, s, d], as it lies in [b, s, nh*d]
}

TEST(Layout, SplittingHeadsAndBackIsFree) {
  Tape tape;
  const Tensor x = leaf(tape, kHidden);
  const Tensor back = reshape(transpose(heads(x), 1, 2), kHidden);
  EXPECT_EQ(id_of(back), id_of(x));
  EXPECT_TRUE(back.is_contiguous());
}

TEST(Layout, FlatteningTransposedHeadsCopies) {
  Tape tape;
  const Tensor x = leaf(tape, kHidden);
  const Tensor flat = reshape(heads(x), {{2, Sym::b}, {4, Sym::nh}, {40, Sym::none}});
  EXPECT_NE(id_of(flat), id_of(x));
  EXPECT_EQ(births(tape.trace(), OpKind::clone), 1u);
  EXPECT_EQ(tape.trace().storages[id_of(flat)].bytes, kBytes);
}

TEST(Layout, ElementwiseResultsLieAsTheirInput) {
  Tape tape;
  const Tensor q = heads(leaf(tape, kHidden));
  const Tensor cos = leaf(tape, {{1, Sym::none}, {1, Sym::none}, {5, Sym::s}, {8, Sym::d}}, false);
  const Tensor rotated = q * cos;
  EXPECT_FALSE(rotated.is_contiguous());
  EXPECT_EQ(id_of(reshape(transpose(rotated, 1, 2), kHidden)), id_of(rotated));
}

// The forward pass of the rotary embedding keeps the layout of [b, s, nh*d]; its gradient comes contiguous in
// [b, nh, s, d], and view's backward has to copy it.
TEST(Layout, AGradientInHeadOrderIsCopiedOnce) {
  Tape tape;
  const Tensor x = leaf(tape, kHidden);
  const Tensor cos = leaf(tape, {{1, Sym::none}, {1, Sym::none}, {5, Sym::s}, {8, Sym::d}}, false);
  const Tensor loss = mean_all(contiguous(heads(x * 1.0) * cos));
  const std::size_t before = tape.trace().events.size();
  tape.backward(loss);
  EXPECT_EQ(births(tape.trace(), OpKind::clone, before), 1u);
}

TEST(Layout, FlashAttentionsResultAndGradientsLieAsTheInputs) {
  Tape tape;
  const Tensor q = leaf(tape, kHidden, true, DType::bf16), k = leaf(tape, kHidden, true, DType::bf16);
  const Tensor v = leaf(tape, kHidden, true, DType::bf16);
  const Tensor out = flash_attention(heads(q * 1.0), heads(k * 1.0), heads(v * 1.0));
  EXPECT_EQ(id_of(contiguous(transpose(out, 1, 2))), id_of(out));
  const std::size_t before = tape.trace().events.size();
  tape.backward(mean_all(reshape(transpose(out, 1, 2), kHidden)));
  EXPECT_EQ(births(tape.trace(), OpKind::clone, before), 0u);
}

// rotate_half: cat(-x[d/2:], x[:d/2]).
TEST(Layout, EachHalfsGradientIsAZeroFilledWhole) {
  Tape tape({.operands = true});
  const Tensor x = leaf(tape, kHidden);
  const Tensor y = x * 1.0;
  const Tensor x1 = slice(y, -1, 0, {16, Sym::half_d}), x2 = slice(y, -1, 16, {16, Sym::half_d});
  EXPECT_EQ(id_of(x1), id_of(x2));
  const Tensor rotated = cat(neg(x2), x1, -1);
  EXPECT_EQ(rotated.dim(-1).sym, Sym::d);
  const Tensor loss = mean_all(rotated);
  const std::size_t before = tape.trace().events.size();
  tape.backward(loss);
  EXPECT_EQ(births(tape.trace(), OpKind::zeros, before), 2u);  // slice_backward, twice, each of the whole
  EXPECT_EQ(births(tape.trace(), OpKind::neg, before), 1u);
  EXPECT_EQ(births(tape.trace(), OpKind::add, before), 1u);  // and their sum
  for (const StorageInfo& storage : tape.trace().storages) {
    if (storage.op == OpKind::zeros) {
      EXPECT_EQ(storage.bytes, kBytes);
    }
  }
  EXPECT_EQ(runs(tape.trace(), OpKind::copy_into), 2u);
}

TEST(Layout, AnExpandedGradientIsMaterialisedByDivision) {
  Tape tape;
  const Tensor x = leaf(tape, kHidden);
  const Tensor loss = mean_all(x * 1.0);
  const std::size_t before = tape.trace().events.size();
  tape.backward(loss);
  EXPECT_EQ(births(tape.trace(), OpKind::div_scalar, before), 1u);  // mean: expand (a view), then / numel
}

// The whole of what flash_api.cpp's mha_bwd takes: softmax_d fp32 [b,nh,round128(s)], dq_accum fp32
// [b,round128(s),nh,round32(d)], and for grouped heads dk and dv at all query heads.
struct Scratch {
  const char* name;
  std::uint64_t b, nh, nkv, s, d;
  Bytes bytes;
};

class FlashScratch : public testing::TestWithParam<Scratch> {};

void PrintTo(const Scratch& c, std::ostream* out) {
  *out << c.name;
}

TEST_P(FlashScratch, AsMhaBwdAllocates) {
  const auto [name, b, nh, nkv, s, d, bytes] = GetParam();
  Tape tape;
  const Tensor q = leaf(tape, shape_of({b, nh, s, d}), true, DType::bf16);
  const Tensor k = leaf(tape, shape_of({b, nkv, s, d}), true, DType::bf16);
  tape.backward(mean_all(flash_attention(q, k, k)));
  Bytes scratch = 0;
  for (const StorageInfo& storage : tape.trace().storages) {
    scratch += storage.category == Category::workspace ? storage.bytes : 0;
  }
  EXPECT_EQ(scratch, bytes);
}

INSTANTIATE_TEST_SUITE_P(Shapes, FlashScratch,
                         testing::Values(Scratch{"round_sizes", 1, 4, 4, 128, 32, 4 * 4 * 128 + 4 * 128 * 4 * 32},
                                         Scratch{"odd_length", 2, 4, 4, 130, 32, 2 * (4 * 4 * 256 + 4 * 256 * 4 * 32)},
                                         Scratch{"odd_head", 1, 4, 4, 128, 40, 4 * 4 * 128 + 4 * 128 * 4 * 64},
                                         Scratch{"grouped", 1, 4, 2, 128, 32,
                                                 4 * 4 * 128 + 4 * 128 * 4 * 32 + 2 * (128 * 4 * 32 * 2)}),
                         [](const auto& row) { return std::string(row.param.name); });

// One cuBLAS workspace per thread that multiplies: forward's at its first product, the autograd thread's at its own.
TEST(Cublas, OneWorkspaceForForwardAndOneForBackward) {
  Tape tape({.cublas_workspace_bytes = 1000});
  const Tensor w = leaf(tape, shape_of({4, 4}));
  const auto workspaces = [&] { return births(tape.trace(), OpKind::workspace); };
  EXPECT_EQ(workspaces(), 0u);
  const Tensor loss = mean_all(linear(linear(w, w, Tensor()), w, Tensor()));
  EXPECT_EQ(workspaces(), 1u);
  tape.backward(loss);
  EXPECT_EQ(workspaces(), 2u);
  tape.backward(mean_all(linear(w, w, Tensor())));
  EXPECT_EQ(workspaces(), 2u);
}

}  // namespace
}  // namespace ledger
