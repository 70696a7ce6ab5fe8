// Autocast: which casts are made, which are shared, and when they die. Source of the rules:
// aten/src/ATen/autocast_mode.cpp (cached_cast: fp32 leaves that need a gradient, until the outermost region ends).
#include <gtest/gtest.h>

#include "tests/trace/tape_tester.h"

namespace ledger {
namespace {

// Casts of storages of `bytes` bytes.
std::size_t casts(const Trace& trace, Bytes bytes) {
  return static_cast<std::size_t>(
      std::count_if(trace.storages.begin(), trace.storages.end(),
                    [bytes](const StorageInfo& s) { return s.op == OpKind::to_copy && s.bytes == bytes; }));
}

constexpr Bytes kWeightCast = 40;  // [4,5] in bf16
constexpr Bytes kInputCast = 30;   // [3,5]

struct Setting {
  Tape tape;
  Tensor weight, x;
  explicit Setting(bool trainable = true, DType dtype = DType::f32)
      : weight(leaf(tape, shape_of({4, 5}), trainable, dtype)), x(leaf(tape, shape_of({3, 5}), true, dtype)) {}
};

TEST(Autocast, AWeightIsCastOnceInARegion) {
  Setting at;
  const Tape::Autocast autocast(at.tape, true);
  const Tensor a = linear(at.x, at.weight, Tensor()), b = linear(at.x, at.weight, Tensor());
  EXPECT_EQ(a.dtype(), DType::bf16);
  EXPECT_EQ(casts(at.tape.trace(), kWeightCast), 1u);
}

TEST(Autocast, AnActivationIsCastAtEveryUse) {
  Setting at;
  const Tensor hidden = at.x * 1.0;
  const Tape::Autocast autocast(at.tape, true);
  const Tensor a = linear(hidden, at.weight, Tensor()), b = linear(hidden, at.weight, Tensor());
  EXPECT_EQ(casts(at.tape.trace(), kInputCast), 2u);
}

TEST(Autocast, AFrozenWeightIsCastAtEveryUse) {
  Setting at(false);
  const Tape::Autocast autocast(at.tape, true);
  const Tensor a = linear(at.x, at.weight, Tensor()), b = linear(at.x, at.weight, Tensor());
  EXPECT_EQ(casts(at.tape.trace(), kWeightCast), 2u);
}

TEST(Autocast, WeightsInBf16AreNotCast) {
  Setting at(true, DType::bf16);
  const Tape::Autocast autocast(at.tape, true);
  const Tensor a = linear(at.x, at.weight, Tensor());
  EXPECT_EQ(births(at.tape.trace(), OpKind::to_copy), 0u);
}

TEST(Autocast, TheCacheLivesUntilTheOutermostRegionEnds) {
  Setting at;
  StorageId cast = kNoStorage;
  {
    const Tape::Autocast outer(at.tape, true);
    {
      const Tape::NoGrad no_grad(at.tape);
      const Tape::Autocast inner(at.tape, true);
      linear(at.x, at.weight, Tensor());
      cast = static_cast<StorageId>(at.tape.trace().storages.size() - 2);  // the product is the last
    }
    EXPECT_EQ(at.tape.trace().storages[cast].bytes, kWeightCast);
    EXPECT_TRUE(alive(at.tape, cast));
    {
      const Tape::Autocast off(at.tape, false);
      EXPECT_EQ(linear(at.x, at.weight, Tensor()).dtype(), DType::f32);
    }
    EXPECT_TRUE(alive(at.tape, cast));
  }
  EXPECT_FALSE(alive(at.tape, cast));
}

TEST(Autocast, TheNextRegionCastsAnew) {
  Setting at;
  for (int i = 0; i < 2; ++i) {
    const Tape::Autocast autocast(at.tape, true);
    linear(at.x, at.weight, Tensor());
  }
  EXPECT_EQ(casts(at.tape.trace(), kWeightCast), 2u);
}

TEST(Autocast, ACastThatTheGraphSavedOutlivesTheRegion) {
  Setting at;
  Tensor out;
  {
    const Tape::Autocast autocast(at.tape, true);
    out = linear(at.x, at.weight, Tensor());
  }
  // Parameters 80 + 60; the product [3,4] in bf16; casts of weight and input, saved by mm.
  EXPECT_EQ(live_bytes(at.tape), 140u + 24 + kWeightCast + kInputCast);
  at.tape.backward(mean_all(out));
  EXPECT_EQ(at.weight.grad().dtype(), DType::f32);
  out.reset();
  EXPECT_EQ(live_bytes(at.tape), 140u + 140u);  // parameters and their gradients
}

struct Listed {
  const char* name;
  Tensor (*op)(const Tensor&);
  DType result;  // for a bf16 input inside a region
};

void PrintTo(const Listed& c, std::ostream* out) {
  *out << c.name;
}

class AutocastList : public testing::TestWithParam<Listed> {};

TEST_P(AutocastList, DtypeOfTheResult) {
  Tape tape;
  const Tensor x = leaf(tape, shape_of({3, 5}), true, DType::bf16);
  EXPECT_EQ(GetParam().op(x).dtype(), DType::bf16);
  const Tape::Autocast autocast(tape, true);
  EXPECT_EQ(GetParam().op(x).dtype(), GetParam().result);
}

INSTANTIATE_TEST_SUITE_P(Operators, AutocastList,
                         testing::Values(Listed{"pow", [](const Tensor& x) { return pow(x, 2); }, DType::f32},
                                         Listed{"rsqrt", [](const Tensor& x) { return rsqrt(x); }, DType::f32},
                                         Listed{"log_softmax", [](const Tensor& x) { return log_softmax(x); },
                                                DType::f32},
                                         Listed{"silu", [](const Tensor& x) { return silu(x); }, DType::bf16},
                                         Listed{"mul", [](const Tensor& x) { return x * x; }, DType::bf16},
                                         Listed{"mean", [](const Tensor& x) { return mean_last(x); }, DType::bf16}),
                         [](const auto& row) { return std::string(row.param.name); });

TEST(Autocast, AttentionRunsInLowPrecision) {
  Tape tape;
  const Tensor q = leaf(tape, shape_of({1, 2, 3, 8}));
  const Tape::Autocast autocast(tape, true);
  const Tensor x = q * 1.0;  // leaves that need a gradient are cached as weights are
  EXPECT_EQ(flash_attention(x, x, x).dtype(), DType::bf16);
  EXPECT_EQ(births(tape.trace(), OpKind::to_copy), 3u);
}

}  // namespace
}  // namespace ledger
