// float_formats.h - every number format that a training step meets, as a table: layout, values, rounding, neighbours.
//
// A format is sign, exponent and mantissa bits, or a table of values (nf4). Rounding is to nearest, ties to even, from
// a double at once; number_format.h has the quick conversions of the two 16-bit formats, and tests hold both equal.
// Past the largest finite value lies what the format's next pattern says: infinity, or NaN in e4m3, which has no
// infinity (OCP 8-bit floating point specification 1.0; PyTorch's casts do the same). NVIDIA's own conversion to tf32
// rounds ties away from zero instead of to even.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace ledger {

enum class NumberFormat : std::uint8_t { fp32, tf32, bf16, fp16, fp8_e4m3, fp8_e5m2, nf4, count_ };

enum class NumberClass : std::uint8_t { zero, subnormal, normal, infinity, nan, code };

struct FormatInfo {
  const char* name;
  unsigned sign_bits, exponent_bits, mantissa_bits;  // of nf4: a code of four bits, kept as mantissa
  bool infinities;                                   // the top exponent is kept for infinities and NaNs
  unsigned stored_bits;                              // tf32 lies in four bytes of memory, of which 19 bits count

  unsigned bits() const { return sign_bits + exponent_bits + mantissa_bits; }
  int bias() const { return exponent_bits == 0 ? 0 : (1 << (exponent_bits - 1)) - 1; }
};

const FormatInfo& info(NumberFormat format);
std::optional<NumberFormat> number_format(std::string_view name);

double value_of(NumberFormat format, std::uint32_t bits);
std::uint32_t round_to(NumberFormat format, double value);
NumberClass class_of(NumberFormat format, std::uint32_t bits);

// `value` as it is after being stored in the format.
inline double through(NumberFormat format, double value) {
  return value_of(format, round_to(format, value));
}

struct Neighbours {
  std::optional<double> below, above;  // nothing beyond the largest finite value, and nothing for infinities and NaNs
  double ulp = 0;  // the step to the next value away from zero; at the end of the range, the last step
};
Neighbours neighbours(NumberFormat format, std::uint32_t bits);

struct Range {
  double largest, smallest_normal, smallest, epsilon;  // epsilon: from 1 to the next value
};
Range range_of(NumberFormat format);

}  // namespace ledger
