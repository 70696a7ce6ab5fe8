// nearest.h - the closest known spelling of a mistyped key or value, or nothing when none is close.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace ledger {

// Letters changed, added, left out or swapped with their neighbour (optimal string alignment); case does not count, and
// '-', '_', ' ' and '.' are one letter. Texts are compared up to 64 bytes.
unsigned edit_distance(std::string_view a, std::string_view b);

// The candidate at the smallest distance, or one that begins with `text`; "" when the best differs in more than a third
// of its letters (at least 2). Of equals the first wins.
std::string nearest(std::string_view text, std::span<const char* const> candidates);

}  // namespace ledger
