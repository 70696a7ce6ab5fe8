// Initial values are a published formula: known hashes, known frequencies, and what each operator fills in.
#include "one_op.h"
#include "probe/initial_values.h"

namespace ledger::one_op {
namespace {

TEST(InitialValues, HashesMatchTheirPublishedVectors) {
  EXPECT_EQ(splitmix64(0), 0xE220A8397B1DCDAFull);  // first output of java.util.SplittableRandom's mixer from seed 0
  EXPECT_EQ(fnv1a64(""), 0xCBF29CE484222325ull);
  EXPECT_EQ(fnv1a64("a"), 0xAF63DC4C8601EC8Cull);       // isthe.com/chongo/src/fnv/test_fnv.c
  EXPECT_EQ(fnv1a64("foobar"), 0x85944171F73967E8ull);  // ibid.
}

Trace with_parameter(Parameter::Role role) {
  Trace trace;
  trace.parameters.push_back({.name = "some.weight", .role = role});
  return trace;
}

TEST(CreateKernels, ParametersFollowTheirNames) {
  const TestTensor m =
      run_op(OpKind::load_parameter, {}, {empty(DType::f64, {70, 11})}, {}, with_parameter(Parameter::Role::matrix))[0];
  const TestTensor n =
      run_op(OpKind::load_parameter, {}, {empty(DType::f32, {64})}, {}, with_parameter(Parameter::Role::norm))[0];
  for (std::uint64_t i = 0; i < m.numel(); ++i) {
    const double u = static_cast<double>(splitmix64(fnv1a64("some.weight") + i) >> 11) * 0x1p-53;
    ASSERT_EQ(m[i], (u - 0.5) * 2 * 0.08);
    if (i < 64) {
      ASSERT_EQ(n[i], rounded_to(DType::f32, 1 + (u - 0.5) * 2 * 0.1));
    }
  }
}

TEST(CreateKernels, AnUnknownParameterIsAFailure) {
  EXPECT_TRUE(try_op(OpKind::load_parameter, {}, {empty(DType::f32, {2})}, {0, {3, 0}}).failure);
}

TEST(CreateKernels, TokensFollowTheirFormulaAndStayBelowTheVocabulary) {
  Trace trace;
  trace.vocab_size = 61;
  const TestTensor ids = run_op(OpKind::load_tokens, {}, {empty(DType::i64, {2, 300})}, {}, trace)[0];
  for (std::uint64_t i = 0; i < ids.numel(); ++i) {
    ASSERT_EQ(ids[i], static_cast<double>(splitmix64(7919 + i) % 61));
  }
}

TEST(CreateKernels, FeaturesAreSpreadOverMinusOneToOne) {
  const TestTensor x = run_op(OpKind::load_values, {}, {empty(DType::f32, {100, 100})})[0];
  double sum = 0, squares = 0;
  for (const double value : x.memory) {
    ASSERT_GE(value, -1);
    ASSERT_LT(value, 1);
    sum += value;
    squares += value * value;
  }
  EXPECT_NEAR(sum / 1e4, 0, 0.03);
  EXPECT_NEAR(squares / 1e4, 1.0 / 3, 0.01);
}

TEST(CreateKernels, ConstantsAndCounters) {
  EXPECT_EQ(run_op(OpKind::arange, {}, {empty(DType::i64, {4})})[0].memory, (std::vector<double>{0, 1, 2, 3}));
  EXPECT_EQ(run_op(OpKind::ones_like, {}, {empty(DType::bf16, {2})})[0].memory, (std::vector<double>{1, 1}));
  EXPECT_EQ(run_op(OpKind::zeros, {}, {empty(DType::f32, {2})})[0].memory, (std::vector<double>{0, 0}));
  EXPECT_EQ(run_op(OpKind::eye, {}, {empty(DType::bf16, {3, 3})})[0].memory,
            (std::vector<double>{1, 0, 0, 0, 1, 0, 0, 0, 1}));
  EXPECT_TRUE(std::isnan(run_op(OpKind::workspace, {}, {empty(DType::f32, {1})})[0][0])) << "left as it was";
}

std::vector<double> buckets(std::uint64_t queries, std::uint64_t keys, bool both_ways, std::int64_t count,
                            std::int64_t max_distance) {
  const Attr attr{both_ways ? 1.0 : 0.0, {count, max_distance}};
  return run_op(OpKind::relative_buckets, {}, {empty(DType::i64, {queries, keys})}, attr)[0].memory;
}

// Four exact distances, then 4 + floor(4 log5(d / 4)), no more than 7.
TEST(CreateKernels, DistancesToKeysBeforeShareBucketsAsTheyGrow) {
  const std::vector<double> last = buckets(21, 21, false, 8, 20);
  const std::vector<double> by_distance = {0, 1, 2, 3, 4, 4, 5, 5, 5, 6, 6, 6, 6, 6, 7, 7, 7, 7, 7, 7, 7};
  for (std::size_t distance = 0; distance < 21; ++distance) {
    EXPECT_EQ(last[20 * 21 + 20 - distance], by_distance[distance]) << distance;
    EXPECT_EQ(last[distance], 0) << "keys that come after the first query";
  }
}

// Of T5's 32 buckets, 16 each way: 8 exact, the last from 91 tokens on (8 + 8 log16(d / 8) = 15).
TEST(CreateKernels, DistancesBothWaysHaveHalfOfTheBucketsEach) {
  const std::vector<double> table = buckets(1, 200, true, 32, 128);
  EXPECT_EQ(table[0], 0);
  EXPECT_EQ(table[7], 16 + 7);
  EXPECT_EQ(table[8], 16 + 8);
  EXPECT_EQ(table[90], 16 + 14);
  EXPECT_EQ(table[91], 16 + 15);
  EXPECT_EQ(table[199], 16 + 15);
  const std::vector<double> before = buckets(200, 1, true, 32, 128);
  for (std::size_t i = 1; i < 200; ++i)
    EXPECT_EQ(before[i], table[i] - 16) << i;
}

std::vector<double> frequencies(double theta, std::uint64_t half, const RopeScaling& rope) {
  Trace trace;
  trace.rope = rope;
  return run_op(OpKind::load_buffer, {}, {empty(DType::f32, {half})}, {theta, {}}, trace)[0].memory;
}

TEST(CreateKernels, RotaryFrequenciesFallGeometrically) {
  const std::vector<double> plain = frequencies(10000, 4, {});
  const std::vector<double> halved = frequencies(10000, 4, {.type = "linear", .factor = 2});
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(plain[i], static_cast<double>(1.0f / std::pow(10.0f, static_cast<float>(i))));
    EXPECT_EQ(halved[i], plain[i] / 2);
  }
}

// Llama 3.1 8B's rope_scaling. Wavelengths below 8192/4 are kept, those above 8192/1 are 8 times as long.
TEST(CreateKernels, Llama3ScalingKeepsShortWavesAndStretchesLongOnes) {
  const RopeScaling llama31{.type = "llama3",
                            .factor = 8,
                            .low_freq_factor = 1,
                            .high_freq_factor = 4,
                            .original_max_position_embeddings = 8192};
  const std::vector<double> plain = frequencies(500000, 64, {}), scaled = frequencies(500000, 64, llama31);
  for (std::size_t i = 0; i < 64; ++i) {
    const double wavelength = 2 * std::acos(-1.0) / plain[i];
    if (wavelength < 2048) {
      EXPECT_EQ(scaled[i], plain[i]) << i;
    } else if (wavelength > 8192) {
      EXPECT_EQ(scaled[i], plain[i] / 8) << i;
    } else {
      const double smooth = (8192 / wavelength - 1) / 3;
      EXPECT_NEAR(scaled[i], ((1 - smooth) / 8 + smooth) * plain[i], 1e-7 * plain[i]) << i;
    }
  }
}

}  // namespace
}  // namespace ledger::one_op
