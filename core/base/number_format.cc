#include "core/base/number_format.h"

#include <cstring>

namespace ledger {
namespace {

constexpr std::uint32_t kSign = 0x8000'0000u;
constexpr std::uint32_t kInfinity = 0x7F80'0000u;  // fp32 bit patterns without sign; above it are NaNs
constexpr std::uint32_t kFp16Overflow =
    0x477F'F000u;  // 65520: halfway from the largest fp16, 65504, to 2^16; ties go up
constexpr std::uint32_t kFp16MinNormal = 0x3880'0000u;  // 2^-14
constexpr std::uint32_t kFp16Zero = 0x3300'0000u;       // 2^-25: half the smallest subnormal; the tie goes to 0

std::uint32_t bits_of(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

float float_of(std::uint32_t bits) {
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// bits / 2^shift, to nearest, ties to even. A carry out of the mantissa raises the exponent, as it should.
std::uint32_t round_shift(std::uint32_t bits, unsigned shift) {
  const std::uint32_t kept = bits >> shift;
  const std::uint32_t half = 1u << (shift - 1);
  return (bits + (half - 1) + (kept & 1u)) >> shift;
}

}  // namespace

std::uint16_t bf16_from_float(float value) {
  const std::uint32_t bits = bits_of(value);
  const bool is_nan = (bits & ~kSign) > kInfinity;
  // Rounding could carry a NaN into infinity, and cutting could leave an empty payload: set the quiet bit instead.
  return static_cast<std::uint16_t>(is_nan ? (bits >> 16) | 0x40u : round_shift(bits, 16));
}

float float_from_bf16(std::uint16_t bits) {
  return float_of(static_cast<std::uint32_t>(bits) << 16);
}

std::uint16_t fp16_from_float(float value) {
  const std::uint32_t bits = bits_of(value);
  const std::uint32_t sign = (bits & kSign) >> 16;
  const std::uint32_t size = bits & ~kSign;
  const auto with_sign = [&](std::uint32_t half) { return static_cast<std::uint16_t>(sign | half); };
  if (size > kInfinity) return with_sign(0x7E00u | ((size >> 13) & 0x1FFu));
  if (size >= kFp16Overflow) return with_sign(0x7C00u);
  if (size >= kFp16MinNormal) return with_sign(round_shift(size - ((127u - 15u) << 23), 13));
  if (size <= kFp16Zero) return with_sign(0);
  // Subnormal: the mantissa with its hidden bit, counted in units of 2^-24.
  const std::uint32_t exponent = size >> 23;
  return with_sign(round_shift((size & 0x7F'FFFFu) | 0x80'0000u, 126u - exponent));
}

float float_from_fp16(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1Fu;
  const std::uint32_t mantissa = bits & 0x3FFu;
  if (exponent == 0x1F) return float_of(sign | kInfinity | (mantissa << 13));
  if (exponent != 0) return float_of(sign | ((exponent + 127 - 15) << 23) | (mantissa << 13));
  const float size = static_cast<float>(mantissa) * 0x1p-24f;  // exact: at most 10 bits
  return sign != 0 ? -size : size;
}

}  // namespace ledger
