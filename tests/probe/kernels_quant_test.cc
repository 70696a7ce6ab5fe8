// NF4 against bitsandbytes' own codes, its 8-bit map, and round trips through plain and doubly quantised scales.
#include <algorithm>
#include <set>

#include "golden.h"
#include "one_op.h"
#include "probe/host/nf4.h"
#include "probe/initial_values.h"

namespace ledger::one_op {
namespace {

using host::dynamic_map;

// tests/fixtures/golden/nf4.json: (u - 0.5) * 4 with u from the formula under the name "nf4".
TEST(Nf4, CodesScalesAndValuesAreThoseOfBitsandbytes) {
  const Json golden = golden_file("nf4.json");
  std::vector<float> values(256);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(centred_value(fnv1a64("nf4") + i, 2));
  const host::Blocks blocks = host::quantise_blocks(values, host::kNf4Block, kNf4);
  const std::vector<std::uint8_t> bytes = host::packed(blocks.codes);
  EXPECT_EQ(std::vector<double>(kNf4.begin(), kNf4.end()), numbers(*golden.find("code")));
  EXPECT_EQ(std::vector<double>(blocks.absmax.begin(), blocks.absmax.end()), numbers(*golden.find("absmax")));
  EXPECT_EQ(std::vector<double>(bytes.begin(), bytes.end()), numbers(*golden.find("packed")));

  const TestTensor packed = dense(DType::u8, {128, 1}, {bytes.begin(), bytes.end()});
  const TestTensor absmax = dense(DType::f32, {4}, {blocks.absmax.begin(), blocks.absmax.end()});
  const TestTensor code = dense(DType::f32, {16}, {kNf4.begin(), kNf4.end()});
  const TestTensor back = run_op(OpKind::dequantise, {packed, absmax, code}, {empty(DType::f32, {4, 64})})[0];
  const std::vector<double> first = numbers(*golden.find("dequantized_first"));
  EXPECT_EQ(std::vector<double>(back.memory.begin(), back.memory.begin() + 16), first);
}

TEST(Nf4, AValueHalfwayTakesTheLowerCodeAndZeroStaysZero) {
  const std::vector<float> values = {kNf4[8] / 2, kNf4[6] / 2, 1, 0};
  const host::Blocks blocks = host::quantise_blocks(values, 64, kNf4);
  EXPECT_EQ(blocks.codes, (std::vector<std::uint8_t>{7, 6, 15, 7}));
  const host::Blocks zeros = host::quantise_blocks(std::vector<float>(3, 0.0f), 64, kNf4);
  EXPECT_EQ(zeros.codes, (std::vector<std::uint8_t>{7, 7, 7}));
  EXPECT_EQ(host::packed(zeros.codes), (std::vector<std::uint8_t>{0x77, 0x77})) << "padded with zero";
}

// Dettmers, 8-Bit Approximations for Parallelism in Deep Learning (2015): a sign, up to seven zeros, and what is left
// is a fraction of [0.1, 1).
TEST(DynamicMap, HasADecadeForEachExponentWithTwiceTheValuesOfTheOneBelow) {
  const std::vector<float> map(dynamic_map().begin(), dynamic_map().end());
  EXPECT_TRUE(std::is_sorted(map.begin(), map.end()));
  EXPECT_EQ(std::set<float>(map.begin(), map.end()).size(), 256u);
  EXPECT_EQ(map[127], 0);
  EXPECT_EQ(map.back(), 1);
  EXPECT_NEAR(map.front(), -0.9929687, 1e-7) << "the largest mean; only +1 is there as such";
  EXPECT_NEAR(map[128], 5.5e-7, 1e-13) << "the mean of 0.1 and 1, seven decades down";
  double high = 1e-6;
  for (int exponent = 0; exponent < 7; ++exponent, high *= 10) {
    const auto in_decade = [&](float x) { return x < static_cast<float>(high) && x > static_cast<float>(high / 10); };
    EXPECT_EQ(std::count_if(map.begin(), map.end(), in_decade), 1 << exponent) << exponent;
  }
}

struct Quantised {
  TestTensor packed, absmax, code, offset, absmax2, code2;
};

Trace with_parameter() {
  Trace trace;
  trace.parameters.push_back({.name = "layers.0.q_proj.weight", .role = Parameter::Role::matrix});
  return trace;
}

std::vector<TestTensor> quantise(std::uint64_t elements, bool nested) {
  const std::uint64_t blocks = (elements + 63) / 64;
  std::vector<TestTensor> out = {empty(DType::u8, {(elements + 1) / 2, 1}),
                                 empty(nested ? DType::u8 : DType::f32, {blocks}), empty(DType::f32, {16})};
  if (nested) {
    out.push_back(empty(DType::f32, {}));
    out.push_back(empty(DType::f32, {(blocks + 255) / 256}));
    out.push_back(empty(DType::f32, {256}));
  }
  return run_op(OpKind::quantise, {}, out, {0, {0, static_cast<std::int64_t>(elements)}}, with_parameter());
}

double original(std::uint64_t i) {
  return rounded_to(DType::bf16, centred_value(fnv1a64("layers.0.q_proj.weight") + i, 0.08));
}

// Half the widest gap between codes (-1 and -0.696) times the block's scale.
constexpr double kWorst = (1 - 0.6961928) / 2 * 0.08;

TEST(QuantiseKernels, WeightsComeBackWithinHalfACode) {
  for (const std::uint64_t elements : {64u, 130u, 4096u, 4095u}) {
    const std::vector<TestTensor> q = quantise(elements, false);
    const TestTensor back = run_op(OpKind::dequantise, {q[0], q[1], q[2]}, {empty(DType::f32, {elements})})[0];
    for (std::uint64_t i = 0; i < elements; ++i)
      ASSERT_NEAR(back[i], original(i), kWorst) << i;
  }
}

TEST(QuantiseKernels, DoubleQuantisationMovesScalesByLessThanTheirOwnStep) {
  constexpr std::uint64_t kElements = 64 * 300;  // more than one block of scales
  const std::vector<TestTensor> plain = quantise(kElements, false), nested = quantise(kElements, true);
  EXPECT_EQ(nested[0].values(), plain[0].values()) << "codes are chosen by the exact scales";
  double mean = 0;
  for (const double scale : plain[1].memory)
    mean += scale / 300;
  EXPECT_NEAR(nested[3][0], mean, 1e-8);
  TestTensor scales =
      run_op(OpKind::dequantise_absmax, {nested[1], nested[4], nested[5]}, {empty(DType::f32, {300})})[0];
  scales = run_op(OpKind::add, {scales, nested[3]}, {empty(DType::f32, {300})})[0];
  for (std::uint64_t i = 0; i < 300; ++i) {
    // The map's values lie within 0.9/128 of each other near 1, and nearer everywhere else.
    ASSERT_NEAR(scales[i], plain[1][i], nested[4][i / 256] * 0.0071) << i;
  }
}

TEST(QuantiseKernels, ExpandedWeightsAreRoundedToTheirDtypeOnce) {
  const std::vector<TestTensor> q = quantise(256, false);
  const TestTensor wide = run_op(OpKind::dequantise, {q[0], q[1], q[2]}, {empty(DType::f32, {4, 64})})[0];
  const TestTensor narrow = run_op(OpKind::dequantise, {q[0], q[1], q[2]}, {empty(DType::bf16, {4, 64})})[0];
  for (std::uint64_t i = 0; i < 256; ++i)
    ASSERT_EQ(narrow[i], rounded_to(DType::bf16, wide[i]));
}

TEST(QuantiseKernels, SizesThatDoNotFitAreAFailure) {
  const std::vector<TestTensor> short_of = {empty(DType::u8, {31, 1}), empty(DType::f32, {1}), empty(DType::f32, {16})};
  EXPECT_TRUE(try_op(OpKind::quantise, {}, short_of, {0, {0, 64}}, with_parameter()).failure);
}

}  // namespace
}  // namespace ledger::one_op
