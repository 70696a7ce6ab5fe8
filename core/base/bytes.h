// bytes.h - sizes in bytes, always 64-bit, with arithmetic that cannot wrap quietly.
//
// wasm32's size_t is 32 bits: 4*32768*8192*4 is 0 there. Every size in this project is a Bytes, and every product of
// sizes goes through times() / plus(). An overflow saturates to kOverflow, which no real tensor reaches; readers of
// totals check is_overflow() once instead of every caller checking each step.
#pragma once

#include <cstdint>

namespace ledger {

using Bytes = std::uint64_t;

inline constexpr Bytes kOverflow = ~Bytes{0};
inline constexpr Bytes kKiB = 1024;
inline constexpr Bytes kMiB = 1024 * kKiB;
inline constexpr Bytes kGiB = 1024 * kMiB;

// a * b, or kOverflow; kOverflow is absorbing unless the other factor is 0.
constexpr Bytes times(Bytes a, Bytes b) {
  Bytes product = 0;
  return __builtin_mul_overflow(a, b, &product) ? kOverflow : product;
}

// a + b, or kOverflow; kOverflow is absorbing.
constexpr Bytes plus(Bytes a, Bytes b) {
  Bytes sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? kOverflow : sum;
}

constexpr bool is_overflow(Bytes bytes) {
  return bytes == kOverflow;
}

// a / b rounded up (b > 0).
constexpr std::uint64_t divide_up(std::uint64_t a, std::uint64_t b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

// Smallest multiple of `step` that is >= bytes (step > 0), or kOverflow.
constexpr Bytes round_up(Bytes bytes, Bytes step) {
  const Bytes rest = bytes % step;
  return rest == 0 ? bytes : plus(bytes, step - rest);
}

}  // namespace ledger
