// sinusoids.h - a table of sines and cosines: transformers models/gptj/modeling_gptj.py, create_sinusoidal_positions.
#pragma once

#include <cmath>
#include <cstdint>

#include "probe/math/host_device.h"

namespace ledger::math {

struct Sinusoid {
  std::uint64_t width;  // of a row: sines, then as many cosines

  LEDGER_HOST_DEVICE float operator()(std::uint64_t i) const {
    const std::uint64_t half = width / 2, position = i / width, column = i % width, j = column % half;
    const double frequency = std::pow(10000.0, -2.0 * static_cast<double>(j) / static_cast<double>(width));
    const double angle = static_cast<double>(position) * frequency;
    return static_cast<float>(column < half ? std::sin(angle) : std::cos(angle));
  }
};

}  // namespace ledger::math
