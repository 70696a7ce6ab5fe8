// Causal attention against the whole matrix of scores, its gradients against finite differences, and what causality
// means.
#include "one_op.h"

namespace ledger::one_op {
namespace {

struct AttentionCase {
  const char* name;
  std::uint64_t batch, heads, kv_heads, length, head_dim;
  DType dtype;
};

void PrintTo(const AttentionCase& c, std::ostream* out) {
  *out << c.name;
}

struct Qkv {
  TestTensor q, k, v;
};

// As models make them: [b, s, heads, d] in memory, [b, heads, s, d] to the kernel.
TestTensor random_heads(DType dtype, std::uint64_t batch, std::uint64_t heads, std::uint64_t length,
                        std::uint64_t dim) {
  return transpose(random(dtype, {batch, length, heads, dim}, -2, 2), 1, 2);
}

Qkv random_qkv(const AttentionCase& c) {
  return {random_heads(c.dtype, c.batch, c.heads, c.length, c.head_dim),
          random_heads(c.dtype, c.batch, c.kv_heads, c.length, c.head_dim),
          random_heads(c.dtype, c.batch, c.kv_heads, c.length, c.head_dim)};
}

TestTensor empty_like(const TestTensor& t) {
  TestTensor result = t;
  result.memory.assign(t.memory.size(), std::nan(""));
  return result;
}

struct Attended {
  TestTensor out, logsumexp;
};

Attended attend(const Qkv& x) {
  const Sizes rows = {x.q.sizes[0], x.q.sizes[1], x.q.sizes[2]};
  const std::vector<TestTensor> out =
      run_op(OpKind::flash_attention, {x.q, x.k, x.v},
             {empty_like(x.q), empty(DType::f32, rows), empty(DType::u8, {16}), empty(DType::u8, {8})});
  return {out[0], out[1]};
}

std::vector<TestTensor> attend_backward(const Qkv& x, const TestTensor& gradient) {
  const Attended forward = attend(x);
  return run_op(OpKind::flash_attention_backward, {gradient, x.q, x.k, x.v, forward.out, forward.logsumexp},
                {empty_like(x.q), empty_like(x.k), empty_like(x.v)});
}

// Row by row with all scores at hand, in double.
std::vector<double> naive(const Qkv& x, std::vector<double>& logsumexp) {
  const std::uint64_t batch = x.q.sizes[0], heads = x.q.sizes[1], length = x.q.sizes[2], dim = x.q.sizes[3];
  const std::uint64_t kv_heads = x.k.sizes[1];
  std::vector<double> out(x.q.numel());
  for (std::uint64_t row = 0; row < batch * heads * length; ++row) {
    const std::uint64_t position = row % length, head = row / length % heads, b = row / length / heads;
    const std::uint64_t kv = (b * kv_heads + head * kv_heads / heads) * length;
    std::vector<double> weight(position + 1);
    double total = 0;
    for (std::uint64_t j = 0; j <= position; ++j) {
      double score = 0;
      for (std::uint64_t d = 0; d < dim; ++d)
        score += x.q[row * dim + d] * x.k[(kv + j) * dim + d];
      total += weight[j] = std::exp(score / std::sqrt(static_cast<double>(dim)));
    }
    logsumexp.push_back(std::log(total));
    for (std::uint64_t j = 0; j <= position; ++j) {
      for (std::uint64_t d = 0; d < dim; ++d)
        out[row * dim + d] += weight[j] / total * x.v[(kv + j) * dim + d];
    }
  }
  return out;
}

class AttentionKernels : public testing::TestWithParam<AttentionCase> {};

INSTANTIATE_TEST_SUITE_P(All, AttentionKernels,
                         testing::Values(AttentionCase{"one_token", 1, 1, 1, 1, 4, DType::f64},
                                         AttentionCase{"short", 2, 4, 4, 5, 8, DType::f64},
                                         AttentionCase{"one_block", 1, 2, 1, 64, 6, DType::f64},
                                         AttentionCase{"one_more_than_a_block", 2, 4, 2, 65, 8, DType::f64},
                                         AttentionCase{"three_blocks", 1, 6, 2, 150, 16, DType::f32},
                                         AttentionCase{"odd_head", 1, 3, 1, 70, 5, DType::f32},
                                         AttentionCase{"bf16", 1, 4, 1, 100, 32, DType::bf16},
                                         AttentionCase{"fp16", 1, 2, 2, 33, 8, DType::f16}),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(AttentionKernels, MatchesTheWholeMatrixOfScores) {
  const Qkv x = random_qkv(GetParam());
  std::vector<double> logsumexp;
  const std::vector<double> want = naive(x, logsumexp);
  const Attended got = attend(x);
  const double tolerance = GetParam().dtype == DType::f64 ? 1e-13 : 2e-6;
  expect_near(got.out, want, epsilon(GetParam().dtype) / 2, tolerance);
  expect_near(got.logsumexp, logsumexp, 1e-6, 1e-6);
}

TEST_P(AttentionKernels, BackwardIsTheGradientOfEachInput) {
  AttentionCase c = GetParam();
  c.dtype = DType::f64;
  const Qkv x = random_qkv(c);
  const TestTensor u = random(DType::f64, x.q.sizes);
  const std::vector<TestTensor> gradients = attend_backward(x, u);
  expect_gradient([&](const TestTensor& at) { return attend({at, x.k, x.v}).out; }, x.q, u, gradients[0]);
  expect_gradient([&](const TestTensor& at) { return attend({x.q, at, x.v}).out; }, x.k, u, gradients[1]);
  expect_gradient([&](const TestTensor& at) { return attend({x.q, x.k, at}).out; }, x.v, u, gradients[2]);
}

// The path that every training takes: gradients from the stored fp32 logsumexp.
TEST(AttentionKernels, Fp32GradientsAgreeWithFp64) {
  Qkv x = random_qkv({"", 2, 4, 2, 90, 16, DType::f32});
  TestTensor u = random_heads(DType::f32, 2, 4, 90, 16);
  const std::vector<TestTensor> got = attend_backward(x, u);
  for (TestTensor* t : {&x.q, &x.k, &x.v, &u})
    t->dtype = DType::f64;
  const std::vector<TestTensor> want = attend_backward(x, u);
  for (std::size_t i = 0; i < 3; ++i)
    expect_near(got[i], want[i].values(), 2e-5, 1e-5);
}

TEST(AttentionKernels, ChangingATokenLeavesEarlierOutputsBitForBit) {
  constexpr std::uint64_t kLength = 130, kDim = 8, kChanged = 67;
  Qkv x = random_qkv({"", 1, 2, 1, kLength, kDim, DType::f32});
  const TestTensor before = attend(x).out;
  for (TestTensor* t : {&x.q, &x.k, &x.v}) {
    for (std::uint64_t row = 0; row < t->numel() / kDim; ++row) {
      if (row % kLength != kChanged) continue;
      for (std::uint64_t d = 0; d < kDim; ++d)
        t->memory[t->place(row * kDim + d)] += 1;
    }
  }
  const TestTensor after = attend(x).out;
  for (std::uint64_t i = 0; i < before.numel(); ++i) {
    const std::uint64_t position = i / kDim % kLength;
    if (position < kChanged) {
      ASSERT_EQ(before[i], after[i]) << "position " << position;
    } else if (position == kChanged) {
      ASSERT_NE(before[i], after[i]);
    }
  }
}

TEST(AttentionKernels, ConstantValuesAreLeftAsTheyAre) {
  Qkv x = random_qkv({"", 1, 2, 2, 80, 4, DType::f32});
  std::fill(x.v.memory.begin(), x.v.memory.end(), 1.0);
  const TestTensor out = attend(x).out;
  for (std::uint64_t i = 0; i < out.numel(); ++i)
    ASSERT_NEAR(out[i], 1, 1e-6) << "probabilities sum to 1";
}

// The memory-efficient kernel's own layouts: rows of the logsumexp padded to 32, integers for the random state.
TEST(AttentionKernels, EfficientAttentionComputesTheSameInItsOwnLayouts) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    const Qkv x = random_qkv({"", 2, 3, 3, 45, 8, dtype});
    const TestTensor u = random_heads(dtype, 2, 3, 45, 8);
    const TestTensor padded = empty(DType::f32, {2, 3, 64}), state = empty(DType::i64, {});
    const std::vector<TestTensor> out =
        run_op(OpKind::efficient_attention, {x.q, x.k, x.v}, {empty_like(x.q), padded, state, state});
    const Attended flash = attend(x);
    EXPECT_EQ(out[0].values(), flash.out.values());
    for (std::uint64_t row = 0; row < 6; ++row) {
      for (std::uint64_t i = 0; i < 45; ++i)
        ASSERT_EQ(out[1][row * 64 + i], flash.logsumexp[row * 45 + i]);
    }
    const std::vector<TestTensor> got = run_op(OpKind::efficient_attention_backward, {u, x.q, x.k, x.v, out[0], out[1]},
                                               {empty_like(x.q), empty_like(x.k), empty_like(x.v)});
    const std::vector<TestTensor> want = attend_backward(x, u);
    for (std::size_t i = 0; i < 3; ++i)
      EXPECT_EQ(got[i].values(), want[i].values());
  }
}

TEST(AttentionKernels, HeadsThatDoNotDivideAreAFailure) {
  const Qkv x = random_qkv({"", 1, 3, 2, 4, 4, DType::f32});
  EXPECT_TRUE(try_op(OpKind::flash_attention, {x.q, x.k, x.v},
                     {empty_like(x.q), empty(DType::f32, {1, 3, 4}), empty(DType::u8, {16}), empty(DType::u8, {8})})
                  .failure);
}

// The last queries of a text, alone, see what they see among all of them.
TEST(AttentionKernels, LaterQueriesSeeAllEarlierKeys) {
  const AttentionCase c{"", 2, 4, 2, 70, 8, DType::f64};
  const Qkv whole = random_qkv(c);
  const TestTensor all = attend(whole).out;
  Qkv last = whole;
  last.q.sizes[2] = 3;
  last.q.offset += static_cast<std::uint64_t>(67 * last.q.strides[2]);
  const TestTensor few = attend(last).out;
  for (std::uint64_t head = 0; head < 8; ++head) {
    for (std::uint64_t i = 0; i < 3 * 8; ++i)
      ASSERT_NEAR(few[head * 24 + i], all[(head * 70 + 67) * 8 + i], 1e-12) << head << ", " << i;
  }
}

// A bias that hides what causality hides changes nothing.
TEST(AttentionKernels, ABiasHidesKeysAsCausalityDoes) {
  const Qkv x = random_qkv({"", 2, 3, 3, 21, 8, DType::f64});
  std::vector<double> hidden(2 * 21 * 21);
  for (std::size_t i = 0; i < hidden.size(); ++i)
    hidden[i] = i % 21 <= i / 21 % 21 ? 0 : -std::numeric_limits<double>::infinity();
  const TestTensor bias = dense(DType::f64, {2, 1, 21, 21}, hidden);
  const TestTensor causal = attend(x).out;
  const std::vector<TestTensor> biased =
      run_op(OpKind::efficient_attention, {x.q, x.k, x.v, bias},
             {empty_like(x.q), empty(DType::f32, {2, 3, 32}), empty(DType::i64, {}), empty(DType::i64, {})});
  expect_near(biased[0], causal.values(), 1e-12, 1e-13);
}

}  // namespace
}  // namespace ledger::one_op
