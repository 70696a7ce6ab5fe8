#include "core/config/memory_size.h"

#include <array>
#include <cstddef>
#include <string>

#include "core/base/utf8.h"

namespace ledger {
namespace {

struct Unit {
  std::string_view name;
  Bytes bytes;
};

constexpr std::array kUnits = {
    Unit{"", 1},
    Unit{"b", 1},
    Unit{"kib", kKiB},
    Unit{"kb", 1'000},
    Unit{"m", kMiB},
    Unit{"mib", kMiB},
    Unit{"mb", 1'000'000},
    Unit{"g", kGiB},
    Unit{"gi", kGiB},
    Unit{"gib", kGiB},
    Unit{"gb", 1'000'000'000},
    Unit{"tib", 1024 * kGiB},
    Unit{"tb", 1'000'000'000'000},
};

constexpr std::size_t kFractionDigits = 6;  // 10^6 x a TiB still fits 64 bits

std::string folded_unit(std::string_view text) {
  std::string unit;
  for (const char c : text) {
    if (c != ' ') unit += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return unit;
}

}  // namespace

std::optional<Bytes> memory_size(std::string_view text) {
  std::size_t at = 0;
  Bytes whole = 0;
  for (; at < text.size() && is_digit(text[at]); ++at)
    whole = plus(times(whole, 10), static_cast<Bytes>(text[at] - '0'));
  if (at == 0) return std::nullopt;
  Bytes fraction = 0;
  Bytes scale = 1;
  if (at < text.size() && text[at] == '.') {
    const std::size_t first = ++at;
    for (; at < text.size() && is_digit(text[at]); ++at) {
      if (at - first >= kFractionDigits) continue;
      fraction = fraction * 10 + static_cast<Bytes>(text[at] - '0');
      scale *= 10;
    }
    if (at == first) return std::nullopt;
  }
  const std::string unit = folded_unit(text.substr(at));
  for (const Unit& known : kUnits) {
    if (unit != known.name) continue;
    const Bytes bytes = plus(times(whole, known.bytes), times(fraction, known.bytes) / scale);
    return is_overflow(bytes) ? std::nullopt : std::optional<Bytes>(bytes);
  }
  return std::nullopt;
}

}  // namespace ledger
