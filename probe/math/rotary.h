// rotary.h - inverse frequencies of rotary embeddings, with the scalings that config.json names.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

#include "core/trace/trace.h"
#include "probe/math/host_device.h"

namespace ledger::math {

// RopeScaling without its string, for processors that have none.
struct RopeRule {
  enum class Kind : std::uint8_t { unscaled, linear, llama3 } kind = Kind::unscaled;
  double factor = 1, low_freq_factor = 1, high_freq_factor = 4, context = 8192;
};

inline RopeRule rope_rule(const RopeScaling& rope) {
  const RopeRule::Kind kind = rope.type == "llama3"   ? RopeRule::Kind::llama3
                              : rope.type == "linear" ? RopeRule::Kind::linear
                                                      : RopeRule::Kind::unscaled;
  return {kind, rope.factor, rope.low_freq_factor, rope.high_freq_factor, rope.original_max_position_embeddings};
}

// transformers 5, modeling_rope_utils.py: _compute_llama3_parameters. Long wavelengths are slowed by `factor`, short
// ones kept, those between interpolated.
LEDGER_HOST_DEVICE inline float scaled_llama3(float frequency, const RopeRule& rope) {
  const double wavelength = 2 * std::numbers::pi / static_cast<double>(frequency);
  if (wavelength > rope.context / rope.low_freq_factor) return frequency / static_cast<float>(rope.factor);
  if (wavelength < rope.context / rope.high_freq_factor) return frequency;
  const double smooth =
      (rope.context / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  return static_cast<float>(((1 - smooth) / rope.factor + smooth) * static_cast<double>(frequency));
}

struct InverseFrequency {
  double theta;
  float dim;  // of a head
  RopeRule rope;

  // Rounded to fp32 where transformers rounds: exponent, power and quotient.
  LEDGER_HOST_DEVICE float operator()(std::uint64_t i) const {
    const float exponent = static_cast<float>(2 * i) / dim;
    const float frequency = 1.0f / static_cast<float>(std::pow(theta, static_cast<double>(exponent)));
    if (rope.kind == RopeRule::Kind::llama3) return scaled_llama3(frequency, rope);
    return rope.kind == RopeRule::Kind::linear ? frequency / static_cast<float>(rope.factor) : frequency;
  }
};

// The turn of a pair at a position, in fp32 as transformers' tables are; the pair is turned in C.
struct Turn {
  float cosine, sine;

  LEDGER_HOST_DEVICE Turn(std::uint64_t position, float inverse_frequency, bool back) {
    const float angle = static_cast<float>(position) * inverse_frequency;
    cosine = std::cos(angle);
    sine = back ? -std::sin(angle) : std::sin(angle);
  }
  template <class C>
  LEDGER_HOST_DEVICE void operator()(C& first, C& second) const {
    const C before = first, c = static_cast<C>(cosine), s = static_cast<C>(sine);
    first = before * c - second * s;
    second = second * c + before * s;
  }
};

}  // namespace ledger::math
