#include "core/base/nearest.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace ledger {
namespace {

constexpr std::size_t kLongest = 64;

char folded(char c) {
  if (c >= 'A' && c <= 'Z') return static_cast<char>(c - 'A' + 'a');
  return c == '-' || c == ' ' || c == '.' ? '_' : c;
}

bool begins_with(std::string_view whole, std::string_view start) {
  return whole.size() >= start.size() &&
         std::equal(start.begin(), start.end(), whole.begin(), [](char a, char b) { return folded(a) == folded(b); });
}

}  // namespace

unsigned edit_distance(std::string_view a, std::string_view b) {
  a = a.substr(0, kLongest);
  b = b.substr(0, kLongest);
  using Row = std::array<unsigned, kLongest + 1>;
  Row two_up{};
  Row up{};
  Row row{};
  for (std::size_t j = 0; j <= b.size(); ++j)
    row[j] = static_cast<unsigned>(j);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    two_up = up;
    up = row;
    row[0] = static_cast<unsigned>(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const bool same = folded(a[i - 1]) == folded(b[j - 1]);
      row[j] = std::min({up[j] + 1, row[j - 1] + 1, up[j - 1] + (same ? 0u : 1u)});
      const bool swapped =
          i > 1 && j > 1 && folded(a[i - 1]) == folded(b[j - 2]) && folded(a[i - 2]) == folded(b[j - 1]);
      if (swapped) row[j] = std::min(row[j], two_up[j - 2] + 1);
    }
  }
  return row[b.size()];
}

std::string nearest(std::string_view text, std::span<const char* const> candidates) {
  constexpr std::size_t kPrefix = 3;  // shorter beginnings fit too much
  const char* best = nullptr;
  unsigned best_distance = 0;
  for (const char* candidate : candidates) {
    const unsigned distance = edit_distance(text, candidate);
    if (best == nullptr || distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  if (best == nullptr) return "";
  const std::size_t length = std::max(text.size(), std::string_view(best).size());
  if (best_distance <= std::max<std::size_t>(2, length / 3) && best_distance < length) return best;
  for (const char* candidate : candidates) {
    if (text.size() >= kPrefix && begins_with(candidate, text)) return candidate;
  }
  return "";
}

}  // namespace ledger
