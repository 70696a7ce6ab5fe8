#include "core/base/utf8.h"

#include <array>
#include <cstdint>

namespace ledger {
namespace {

// Lead bytes and the range of the byte after them; Unicode 15, table 3-7. Later bytes are always 80..BF.
struct Lead {
  std::uint8_t first, last;  // of the lead byte
  std::uint8_t bytes;        // of the whole character
  std::uint8_t low, high;    // of the second byte
};

constexpr std::array<Lead, 8> kLeads = {{
    {0xC2, 0xDF, 2, 0x80, 0xBF},
    {0xE0, 0xE0, 3, 0xA0, 0xBF},  // shorter forms exist below A0
    {0xE1, 0xEC, 3, 0x80, 0xBF},
    {0xED, 0xED, 3, 0x80, 0x9F},  // surrogates above 9F
    {0xEE, 0xEF, 3, 0x80, 0xBF},
    {0xF0, 0xF0, 4, 0x90, 0xBF},
    {0xF1, 0xF3, 4, 0x80, 0xBF},
    {0xF4, 0xF4, 4, 0x80, 0x8F},  // U+10FFFF is the last
}};

}  // namespace

Utf8Step utf8_step(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  if (byte(at) < 0x80) return {1, true};
  for (const Lead& lead : kLeads) {
    if (byte(at) < lead.first || byte(at) > lead.last) continue;
    std::size_t seen = 1;
    while (seen < lead.bytes && at + seen < text.size()) {
      const std::uint8_t low = seen == 1 ? lead.low : std::uint8_t{0x80};
      const std::uint8_t high = seen == 1 ? lead.high : std::uint8_t{0xBF};
      if (byte(at + seen) < low || byte(at + seen) > high) break;
      ++seen;
    }
    return {seen, seen == lead.bytes};
  }
  return {1, false};
}

std::string_view utf8_prefix(std::string_view text, std::size_t limit) {
  if (text.size() <= limit) return text;
  std::size_t end = 0;
  while (end < limit) {
    const std::size_t next = end + utf8_step(text, end).bytes;
    if (next > limit) break;
    end = next;
  }
  return text.substr(0, end);
}

}  // namespace ledger
