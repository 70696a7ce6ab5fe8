// Every pattern of every format but fp32 and tf32 (of which tf32's 2^19 are walked, too), and agreement with the quick
// conversions that the executors use.
#include "core/base/float_formats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "core/base/nf4.h"
#include "core/base/number_format.h"

namespace ledger {
namespace {

constexpr NumberFormat kSmall[] = {NumberFormat::bf16, NumberFormat::fp16, NumberFormat::fp8_e4m3,
                                   NumberFormat::fp8_e5m2, NumberFormat::tf32};

std::uint32_t patterns(NumberFormat format) {
  return 1u << info(format).bits();
}

class FloatFormat : public testing::TestWithParam<NumberFormat> {};
INSTANTIATE_TEST_SUITE_P(All, FloatFormat, testing::ValuesIn(kSmall),
                         [](const auto& test) { return std::string(ledger::info(test.param).name); });

TEST_P(FloatFormat, EveryPatternComesBack) {
  const NumberFormat format = GetParam();
  for (std::uint32_t bits = 0; bits < patterns(format); ++bits) {
    const double value = value_of(format, bits);
    if (std::isnan(value)) {
      ASSERT_EQ(class_of(format, bits), NumberClass::nan) << bits;
      ASSERT_EQ(class_of(format, round_to(format, value)), NumberClass::nan) << bits;
    } else {
      ASSERT_EQ(round_to(format, value), bits);
    }
  }
}

// Halfway to the next value the even pattern wins; a little to either side, the nearer one.
TEST_P(FloatFormat, RoundsToNearestAndTiesToEven) {
  const NumberFormat format = GetParam();
  const std::uint32_t half = patterns(format) / 2;
  for (std::uint32_t bits = 0; bits + 1 < half; ++bits) {
    const double here = value_of(format, bits), next = value_of(format, bits + 1);
    if (!std::isfinite(here) || !std::isfinite(next)) continue;
    const double middle = (here + next) / 2;  // a double has room for it
    ASSERT_EQ(round_to(format, middle), bits % 2 == 0 ? bits : bits + 1) << bits;
    ASSERT_EQ(round_to(format, std::nextafter(middle, 0)), bits);
    ASSERT_EQ(round_to(format, std::nextafter(middle, next)), bits + 1);
    ASSERT_EQ(round_to(format, -middle), round_to(format, middle) | half) << bits;
  }
}

TEST_P(FloatFormat, NeighboursAreTheNextPatterns) {
  const NumberFormat format = GetParam();
  const std::uint32_t half = patterns(format) / 2;
  for (std::uint32_t bits = 0; bits < patterns(format); ++bits) {
    const double value = value_of(format, bits);
    const Neighbours near = neighbours(format, bits);
    if (!std::isfinite(value)) {
      ASSERT_FALSE(near.below || near.above) << bits;
      continue;
    }
    if (near.above) {
      ASSERT_GT(*near.above, value) << bits;
      ASSERT_EQ(through(format, *near.above), *near.above) << bits;
      const double middle = value + (*near.above - value) / 2;
      const double stored = through(format, middle);
      ASSERT_TRUE(stored == value || stored == *near.above) << "something lies between " << bits;
    }
    if (near.below) {
      ASSERT_LT(*near.below, value) << bits;
      ASSERT_EQ(through(format, *near.below), *near.below) << bits;
    }
    ASSERT_EQ(near.below && near.above, std::fabs(value) < range_of(format).largest) << bits;
    ASSERT_GT(near.ulp, 0.0) << bits;
    if (bits < half && near.above) {
      ASSERT_EQ(near.ulp, *near.above - value) << bits;
    }
  }
}

float float_of(std::uint32_t bits) {
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// All 65 536 patterns against the conversions that the host executor computes with.
TEST(FloatFormats, AgreeWithTheQuickConversions) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const double bf16 = static_cast<double>(float_from_bf16(half)), fp16 = static_cast<double>(float_from_fp16(half));
    if (!std::isnan(bf16)) {
      ASSERT_EQ(value_of(NumberFormat::bf16, bits), bf16) << bits;
    }
    if (!std::isnan(fp16)) {
      ASSERT_EQ(value_of(NumberFormat::fp16, bits), fp16) << bits;
    }
    ASSERT_EQ(std::isnan(value_of(NumberFormat::bf16, bits)), std::isnan(bf16)) << bits;
    ASSERT_EQ(std::isnan(value_of(NumberFormat::fp16, bits)), std::isnan(fp16)) << bits;
  }
  std::mt19937 random(7);
  for (int i = 0; i < 200000; ++i) {
    const float value = float_of(static_cast<std::uint32_t>(random()));
    if (std::isnan(value)) continue;
    const auto wide = static_cast<double>(value);
    ASSERT_EQ(round_to(NumberFormat::bf16, wide), bf16_from_float(value)) << value;
    ASSERT_EQ(round_to(NumberFormat::fp16, wide), fp16_from_float(value)) << value;
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    ASSERT_EQ(round_to(NumberFormat::fp32, wide), bits) << value;
    ASSERT_EQ(value_of(NumberFormat::fp32, bits), wide);
  }
}

// The formats' own documents: OCP 8-bit floating point 1.0, table 1; IEEE 754 for fp16; bfloat16 is fp32's upper half.
TEST(FloatFormats, HaveTheRangesOfTheirSpecifications) {
  EXPECT_EQ(range_of(NumberFormat::fp8_e4m3).largest, 448);
  EXPECT_EQ(range_of(NumberFormat::fp8_e4m3).smallest_normal, 0x1p-6);
  EXPECT_EQ(range_of(NumberFormat::fp8_e4m3).smallest, 0x1p-9);
  EXPECT_EQ(range_of(NumberFormat::fp8_e5m2).largest, 57344);
  EXPECT_EQ(range_of(NumberFormat::fp8_e5m2).smallest_normal, 0x1p-14);
  EXPECT_EQ(range_of(NumberFormat::fp8_e5m2).smallest, 0x1p-16);
  EXPECT_EQ(range_of(NumberFormat::fp16).largest, 65504);
  EXPECT_EQ(range_of(NumberFormat::fp16).smallest, 0x1p-24);
  EXPECT_EQ(range_of(NumberFormat::bf16).largest, 0x1.FEp127);
  EXPECT_EQ(range_of(NumberFormat::fp32).largest, static_cast<double>(std::numeric_limits<float>::max()));
  EXPECT_EQ(range_of(NumberFormat::fp32).smallest, static_cast<double>(std::numeric_limits<float>::denorm_min()));
  EXPECT_EQ(range_of(NumberFormat::tf32).epsilon, range_of(NumberFormat::fp16).epsilon);
  EXPECT_EQ(range_of(NumberFormat::tf32).smallest_normal, range_of(NumberFormat::bf16).smallest_normal);
}

TEST(FloatFormats, WhatLiesPastTheEnd) {
  EXPECT_TRUE(std::isinf(through(NumberFormat::fp16, 65520))) << "the tie goes up";
  EXPECT_EQ(through(NumberFormat::fp16, 65519.99), 65504);
  EXPECT_EQ(through(NumberFormat::fp8_e4m3, 464), 448) << "the tie goes to the even pattern";
  EXPECT_TRUE(std::isnan(through(NumberFormat::fp8_e4m3, 464.01))) << "no infinity in e4m3";
  EXPECT_TRUE(std::isnan(through(NumberFormat::fp8_e4m3, 1e30)));
  EXPECT_TRUE(std::isinf(through(NumberFormat::fp8_e5m2, 61440)));
  EXPECT_TRUE(std::isinf(through(NumberFormat::bf16, 1e300)));
  EXPECT_EQ(through(NumberFormat::fp32, 1e-300), 0.0);
}

TEST(FloatFormats, Nf4IsATableAndTakesTheNearest) {
  for (std::uint32_t code = 0; code < 16; ++code) {
    EXPECT_EQ(value_of(NumberFormat::nf4, code), static_cast<double>(kNf4[code]));
    EXPECT_EQ(round_to(NumberFormat::nf4, static_cast<double>(kNf4[code])), code);
    const Neighbours near = neighbours(NumberFormat::nf4, code);
    EXPECT_EQ(near.below.has_value(), code > 0);
    EXPECT_EQ(near.above.has_value(), code < 15);
    EXPECT_GT(near.ulp, 0);
  }
  EXPECT_EQ(round_to(NumberFormat::nf4, 5), 15u) << "what is scaled by its block's largest cannot be larger";
  EXPECT_EQ(value_of(NumberFormat::nf4, round_to(NumberFormat::nf4, 0.01)), 0);
}

TEST(FloatFormats, AreFoundByName) {
  for (std::size_t i = 0; i < static_cast<std::size_t>(NumberFormat::count_); ++i) {
    const auto format = static_cast<NumberFormat>(i);
    EXPECT_EQ(number_format(info(format).name), format);
  }
  EXPECT_FALSE(number_format("fp12"));
}

}  // namespace
}  // namespace ledger
