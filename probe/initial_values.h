// initial_values.h - what parameters, tokens and inputs contain before the first step, as a formula of (name, index).
//
// A counter-based hash instead of a random stream: every executor fills tensors in any order and in parallel, and other
// programs (tests/fixtures/golden) can make the very same model without exchanging weights.
#pragma once

#include <cstdint>
#include <string_view>

namespace ledger {

inline constexpr std::uint64_t kTokenSeed = 7919;
inline constexpr double kWeightScale = 0.08;  // matrices and biases
inline constexpr double kNormScale = 0.1;     // norm weights, around 1

// Steele, Lea, Flood: Fast splittable pseudorandom number generators (2014); one step from state x.
constexpr std::uint64_t splitmix64(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

// FNV-1a, 64 bit: http://www.isthe.com/chongo/tech/comp/fnv
constexpr std::uint64_t fnv1a64(std::string_view text) {
  std::uint64_t hash = 0xCBF29CE484222325ull;
  for (const char c : text)
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ull;
  return hash;
}

// Uniform in [0,1): the 53 upper bits of the hash of `counter`.
constexpr double unit_value(std::uint64_t counter) {
  return static_cast<double>(splitmix64(counter) >> 11) * 0x1p-53;
}

// Uniform in [-scale, scale).
constexpr double centred_value(std::uint64_t counter, double scale) {
  return (unit_value(counter) - 0.5) * 2 * scale;
}

}  // namespace ledger
