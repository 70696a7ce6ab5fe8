// All 65 536 patterns of both formats, and the rounding of every value halfway between two neighbours.
#include "core/base/number_format.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

namespace ledger {
namespace {

float float_with(std::uint32_t bits) {
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// The value by the definition of IEEE 754: sign, exponent, mantissa.
double defined(std::uint16_t bits, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) {
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity() : std::nan("");
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

struct Format {
  const char* name;
  int exponent_bits;
  int mantissa_bits;
  std::uint16_t (*from)(float);
  float (*to)(std::uint16_t);

  std::uint16_t infinity() const { return static_cast<std::uint16_t>(((1 << exponent_bits) - 1) << mantissa_bits); }
};

class NumberFormat : public testing::TestWithParam<Format> {};

INSTANTIATE_TEST_SUITE_P(All, NumberFormat,
                         testing::Values(Format{"bf16", 8, 7, bf16_from_float, float_from_bf16},
                                         Format{"fp16", 5, 10, fp16_from_float, float_from_fp16}),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(NumberFormat, EveryPatternHasItsDefinedValueAndComesBack) {
  const Format& format = GetParam();
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    const float value = format.to(bits);
    const double want = defined(bits, format.exponent_bits, format.mantissa_bits);
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(value)) << i;
      ASSERT_TRUE(std::isnan(format.to(format.from(value)))) << i;
      ASSERT_EQ(format.from(value) & 0x8000, bits & 0x8000) << i;
    } else {
      ASSERT_EQ(static_cast<double>(value), want) << i;
      ASSERT_EQ(std::signbit(value), (bits & 0x8000) != 0) << i;
      ASSERT_EQ(format.from(value), bits) << i;
    }
  }
}

// Halfway between neighbours the even one wins, and the next float on either side goes to its own side.
TEST_P(NumberFormat, TiesGoToEven) {
  const Format& format = GetParam();
  const float infinity = std::numeric_limits<float>::infinity();
  for (std::uint16_t bits = 0; bits + 1 < format.infinity(); ++bits) {
    const auto above = static_cast<std::uint16_t>(bits + 1);
    const double middle = (static_cast<double>(format.to(bits)) + static_cast<double>(format.to(above))) / 2;
    const auto tie = static_cast<float>(middle);
    if (static_cast<double>(tie) != middle) continue;  // smaller than fp32 can say (bf16 subnormals)
    ASSERT_EQ(format.from(tie), bits % 2 == 0 ? bits : above) << bits;
    ASSERT_EQ(format.from(std::nextafter(tie, 0.0f)), bits) << bits;
    ASSERT_EQ(format.from(std::nextafter(tie, infinity)), above) << bits;
    ASSERT_EQ(format.from(-tie), format.from(tie) | 0x8000) << bits;
  }
}

TEST_P(NumberFormat, OverflowGoesToInfinity) {
  const Format& format = GetParam();
  const auto largest = static_cast<std::uint16_t>(format.infinity() - 1);
  const double step =
      static_cast<double>(format.to(largest)) - static_cast<double>(format.to(static_cast<std::uint16_t>(largest - 1)));
  const auto tie = static_cast<float>(static_cast<double>(format.to(largest)) + step / 2);
  EXPECT_EQ(format.from(std::nextafter(tie, 0.0f)), largest);
  EXPECT_EQ(format.from(tie), format.infinity());  // largest is odd
  EXPECT_EQ(format.from(std::numeric_limits<float>::max()), format.infinity());
  EXPECT_EQ(format.from(-std::numeric_limits<float>::infinity()), format.infinity() | 0x8000);
}

TEST_P(NumberFormat, ANanWithAnyPayloadStaysOne) {
  const Format& format = GetParam();
  for (const std::uint32_t bits : {0x7F800001u, 0x7FFFFFFFu, 0x7F80FFFFu, 0xFF800001u, 0x7FC00000u}) {
    EXPECT_TRUE(std::isnan(format.to(format.from(float_with(bits))))) << bits;
  }
}

TEST_P(NumberFormat, RandomFloatsGoToANearestValue) {
  const Format& format = GetParam();
  std::mt19937 random(3);
  for (int i = 0; i < 200000; ++i) {
    const float value = float_with(static_cast<std::uint32_t>(random()));
    if (!std::isfinite(value)) continue;
    const std::uint16_t bits = format.from(value);
    if ((bits & 0x7FFF) >= format.infinity() || (bits & 0x7FFF) == 0) continue;
    const double error = std::abs(static_cast<double>(format.to(bits)) - static_cast<double>(value));
    for (const int neighbour : {-1, 1}) {
      const float other = format.to(static_cast<std::uint16_t>(bits + neighbour));
      if (!std::isfinite(other)) continue;
      ASSERT_LE(error, std::abs(static_cast<double>(other) - static_cast<double>(value))) << value;
    }
  }
}

}  // namespace
}  // namespace ledger
