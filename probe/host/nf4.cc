#include "probe/host/nf4.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "probe/math/quantise.h"

namespace ledger::host {
namespace {

constexpr std::uint8_t kNf4Zero = 7;  // index of 0 in kNf4

// torch.linspace in fp32: from both ends towards the middle, one rounding of the product and one of the sum.
float linspace(float first, float last, std::size_t count, std::size_t i) {
  const float step = (last - first) / static_cast<float>(count - 1);
  return i < count / 2 ? first + step * static_cast<float>(i) : last - step * static_cast<float>(count - 1 - i);
}

std::array<float, 256> make_dynamic_map() {
  constexpr int kExponents = 7;
  std::array<float, 256> map{};
  std::size_t next = 0;
  map[next++] = 0;
  map[next++] = 1;
  for (int exponent = 0; exponent < kExponents; ++exponent) {
    const std::size_t boundaries = (std::size_t{1} << exponent) + 1;
    const float scale = static_cast<float>(std::pow(10.0, exponent - (kExponents - 1)));
    for (std::size_t i = 0; i + 1 < boundaries; ++i) {
      const float mean = (linspace(0.1f, 1.0f, boundaries, i) + linspace(0.1f, 1.0f, boundaries, i + 1)) / 2.0f;
      map[next++] = scale * mean;
      map[next++] = -scale * mean;
    }
  }
  std::sort(map.begin(), map.end());
  return map;
}

}  // namespace

const std::array<float, 256>& dynamic_map() {
  static const std::array<float, 256> map = make_dynamic_map();
  return map;
}

Blocks quantise_blocks(std::span<const float> values, std::size_t block, std::span<const float> table) {
  const auto code_of = [&](float x) {
    return static_cast<std::uint8_t>(math::nearest_code(table.data(), static_cast<unsigned>(table.size()), x));
  };
  Blocks result;
  result.codes.reserve(values.size());
  for (std::size_t first = 0; first < values.size(); first += block) {
    const std::span<const float> part = values.subspan(first, std::min(block, values.size() - first));
    float largest = 0;
    for (const float value : part)
      largest = std::max(largest, std::fabs(value));
    const float inverse = largest > 0 ? 1.0f / largest : 0.0f;
    for (const float value : part)
      result.codes.push_back(code_of(std::clamp(value * inverse, -1.0f, 1.0f)));
    result.absmax.push_back(largest);
  }
  return result;
}

std::vector<std::uint8_t> packed(std::span<const std::uint8_t> codes) {
  std::vector<std::uint8_t> bytes((codes.size() + 1) / 2);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const std::uint8_t low = 2 * i + 1 < codes.size() ? codes[2 * i + 1] : kNf4Zero;
    bytes[i] = static_cast<std::uint8_t>(codes[2 * i] << 4 | low);
  }
  return bytes;
}

}  // namespace ledger::host
