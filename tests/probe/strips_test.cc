// Loading and storing runs of elements: every bf16 and fp16 value, rounding as core's, any stride.
#include "probe/host/strips.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "core/base/number_format.h"

namespace ledger::host {
namespace {

struct Half {
  const char* name;
  DType dtype;
  float (*widen)(std::uint16_t);
  std::uint16_t (*narrow)(float);
};

class HalfStrips : public testing::TestWithParam<Half> {};

INSTANTIATE_TEST_SUITE_P(All, HalfStrips,
                         testing::Values(Half{"bf16", DType::bf16, float_from_bf16, bf16_from_float},
                                         Half{"fp16", DType::f16, float_from_fp16, fp16_from_float}),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(HalfStrips, EveryValueIsReadAsCoreReadsIt) {
  std::vector<std::uint16_t> bits(65536);
  for (std::size_t i = 0; i < bits.size(); ++i)
    bits[i] = static_cast<std::uint16_t>(i);
  std::vector<float> values(bits.size());
  load_strip(values.data(), reinterpret_cast<const std::byte*>(bits.data()), 2, bits.size(), GetParam().dtype);
  for (std::size_t i = 0; i < bits.size(); ++i) {
    const float want = GetParam().widen(bits[i]);
    ASSERT_EQ(std::bit_cast<std::uint32_t>(values[i]), std::bit_cast<std::uint32_t>(want)) << i;
  }
}

TEST_P(HalfStrips, FloatsAreRoundedAsCoreRoundsThem) {
  std::mt19937 random(1);
  std::vector<float> values(1 << 20);
  for (float& value : values)
    value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
  for (std::size_t i = 0; i < 65536; ++i)
    values[i] = std::bit_cast<float>(static_cast<std::uint32_t>(i << 16 | 0x8000));  // ties
  std::vector<std::uint16_t> bits(values.size());
  store_strip(reinterpret_cast<std::byte*>(bits.data()), 2, values.data(), values.size(), GetParam().dtype);
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(bits[i], GetParam().narrow(values[i])) << values[i];
}

TEST(Strips, AStrideTouchesNothingBetween) {
  std::vector<float> memory(30, 7.0f);
  const std::vector<double> values = {1, 2, 3};
  store_strip(reinterpret_cast<std::byte*>(memory.data() + 1), 9 * 4, values.data(), 3, DType::f32);
  for (std::size_t i = 0; i < memory.size(); ++i) {
    const bool written = i % 9 == 1 && i < 20;
    EXPECT_EQ(memory[i], written ? static_cast<float>(i / 9 + 1) : 7.0f) << i;
  }
  std::vector<double> back(3);
  load_strip(back.data(), reinterpret_cast<const std::byte*>(memory.data() + 1), 9 * 4, 3, DType::f32);
  EXPECT_EQ(back, values);
}

TEST(Strips, IntegersAreExactInDouble) {
  const std::int64_t ids[] = {0, -100, (std::int64_t{1} << 53) - 1};
  double values[3];
  load_strip(values, reinterpret_cast<const std::byte*>(ids), 8, 3, DType::i64);
  EXPECT_EQ(values[1], -100);
  std::int64_t back[3];
  store_strip(reinterpret_cast<std::byte*>(back), 8, values, 3, DType::i64);
  EXPECT_EQ(0, std::memcmp(ids, back, sizeof ids));
}

}  // namespace
}  // namespace ledger::host
