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
