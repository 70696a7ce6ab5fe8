#include "core/base/float_formats.h"

#include <array>
#include <cmath>
#include <cstddef>
#include <limits>

#include "core/base/nf4.h"

namespace ledger {
namespace {

constexpr std::array<FormatInfo, static_cast<std::size_t>(NumberFormat::count_)> kFormats = {{
    {"fp32", 1, 8, 23, true, 32},
    {"tf32", 1, 8, 10, true, 32},
    {"bf16", 1, 8, 7, true, 16},
    {"fp16", 1, 5, 10, true, 16},
    {"fp8_e4m3", 1, 4, 3, false, 8},
    {"fp8_e5m2", 1, 5, 2, true, 8},
    {"nf4", 0, 0, 4, false, 4},
}};

std::uint32_t size_mask(const FormatInfo& f) {
  return (1u << (f.exponent_bits + f.mantissa_bits)) - 1;
}

std::uint32_t sign_mask(const FormatInfo& f) {
  return f.sign_bits == 0 ? 0 : 1u << (f.exponent_bits + f.mantissa_bits);
}

std::uint32_t top_exponent(const FormatInfo& f) {
  return ((1u << f.exponent_bits) - 1) << f.mantissa_bits;
}

// The first pattern after the finite ones: infinity, or e4m3's only NaN.
std::uint32_t first_beyond(const FormatInfo& f) {
  return f.infinities ? top_exponent(f) : size_mask(f);
}

double finite_size(const FormatInfo& f, std::uint32_t size) {
  const auto mantissa = static_cast<int>(size & ((1u << f.mantissa_bits) - 1));
  const auto exponent = static_cast<int>(size >> f.mantissa_bits);
  const int m = static_cast<int>(f.mantissa_bits);
  if (exponent == 0) return std::ldexp(mantissa, 1 - f.bias() - m);
  return std::ldexp(mantissa + (1 << f.mantissa_bits), exponent - f.bias() - m);
}

double half_even(double value) {
  const double floor = std::floor(value), rest = value - floor;
  if (rest != 0.5) return rest < 0.5 ? floor : floor + 1;
  return std::fmod(floor, 2) == 0 ? floor : floor + 1;
}

// Counted in units of the last place of its own exponent; a carry raises the exponent, as it should.
std::uint32_t rounded_size(const FormatInfo& f, double size) {
  if (size == 0) return 0;
  const int m = static_cast<int>(f.mantissa_bits), least = 1 - f.bias();
  int exponent = 0;
  std::frexp(size, &exponent);  // size = fraction x 2^exponent, fraction in [1/2, 1)
  const int place = exponent - 1 < least ? least : exponent - 1;
  if (place > f.bias() + 1) return first_beyond(f);
  const auto units = static_cast<std::uint32_t>(half_even(std::ldexp(size, m - place)));
  const std::uint32_t bits = (static_cast<std::uint32_t>(place - least) << f.mantissa_bits) + units;
  return bits < first_beyond(f) ? bits : first_beyond(f);
}

// The nearest code; halfway the lower one, as bitsandbytes' thresholds choose.
std::uint32_t nearest_code(double value) {
  std::uint32_t code = 0;
  while (code + 1 < kNf4.size() &&
         value > (static_cast<double>(kNf4[code]) + static_cast<double>(kNf4[code + 1])) / 2) {
    ++code;
  }
  return code;
}

std::uint32_t nan_bits(const FormatInfo& f) {
  return f.infinities ? top_exponent(f) | (1u << (f.mantissa_bits - 1)) : size_mask(f);
}

}  // namespace

const FormatInfo& info(NumberFormat format) {
  return kFormats[static_cast<std::size_t>(format)];
}

std::optional<NumberFormat> number_format(std::string_view name) {
  for (std::size_t i = 0; i < kFormats.size(); ++i) {
    if (name == kFormats[i].name) return static_cast<NumberFormat>(i);
  }
  return std::nullopt;
}

double value_of(NumberFormat format, std::uint32_t bits) {
  const FormatInfo& f = info(format);
  if (format == NumberFormat::nf4) return static_cast<double>(kNf4[bits & 15u]);
  const std::uint32_t size = bits & size_mask(f);
  const double sign = (bits & sign_mask(f)) != 0 ? -1 : 1;
  if (size < first_beyond(f)) return sign * finite_size(f, size);
  const bool infinite = f.infinities && size == top_exponent(f);
  return infinite ? sign * std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
}

std::uint32_t round_to(NumberFormat format, double value) {
  const FormatInfo& f = info(format);
  if (format == NumberFormat::nf4) return nearest_code(value);
  const std::uint32_t sign = std::signbit(value) ? sign_mask(f) : 0;
  if (std::isnan(value)) return sign | nan_bits(f);
  if (std::isinf(value)) return sign | first_beyond(f);
  return sign | rounded_size(f, std::fabs(value));
}

NumberClass class_of(NumberFormat format, std::uint32_t bits) {
  const FormatInfo& f = info(format);
  if (format == NumberFormat::nf4) return NumberClass::code;
  const std::uint32_t size = bits & size_mask(f);
  if (size == 0) return NumberClass::zero;
  if (size < (1u << f.mantissa_bits)) return NumberClass::subnormal;
  if (size < first_beyond(f)) return NumberClass::normal;
  return f.infinities && size == top_exponent(f) ? NumberClass::infinity : NumberClass::nan;
}

Neighbours neighbours(NumberFormat format, std::uint32_t bits) {
  const FormatInfo& f = info(format);
  Neighbours found;
  if (format == NumberFormat::nf4) {
    const std::uint32_t code = bits & 15u;
    if (code > 0) found.below = value_of(format, code - 1);
    if (code < 15) found.above = value_of(format, code + 1);
    const double here = value_of(format, code);
    const bool up = here >= 0 ? code < 15 : code == 0;
    found.ulp = up ? *found.above - here : here - *found.below;
    return found;
  }
  const std::uint32_t size = bits & size_mask(f);
  if (size >= first_beyond(f)) return found;
  const bool last = size + 1 == first_beyond(f);
  const double here = finite_size(f, size);
  const double inward = size == 0 ? -finite_size(f, 1) : finite_size(f, size - 1);
  const std::optional<double> outward = last ? std::nullopt : std::optional(finite_size(f, size + 1));
  found.ulp = last ? here - inward : *outward - here;
  const bool negative = size != 0 && (bits & sign_mask(f)) != 0;
  found.below = negative ? (outward ? std::optional(-*outward) : std::nullopt) : std::optional(inward);
  found.above = negative ? std::optional(inward == 0 ? 0 : -inward) : outward;
  return found;
}

Range range_of(NumberFormat format) {
  const FormatInfo& f = info(format);
  if (format == NumberFormat::nf4) {
    const auto zero = static_cast<std::uint32_t>(7);
    return {1, value_of(format, zero + 1), value_of(format, zero + 1), 0};
  }
  return {finite_size(f, first_beyond(f) - 1), finite_size(f, 1u << f.mantissa_bits), finite_size(f, 1),
          std::ldexp(1, -static_cast<int>(f.mantissa_bits))};
}

}  // namespace ledger
