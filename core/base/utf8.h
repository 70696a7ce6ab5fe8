// utf8.h - where UTF-8 characters begin and end, for writers and for cutting text short; and which bytes are digits.
#pragma once

#include <cstddef>
#include <string_view>

namespace ledger {

inline bool is_digit(char c) {  // in any locale
  return c >= '0' && c <= '9';
}

struct Utf8Step {
  std::size_t bytes;  // to advance by, at least 1
  bool valid;         // false: these bytes are no character and stand for one U+FFFD
};

// The character at `at` (at < text.size()). Of a broken character the longest valid beginning counts as one error, as
// the WHATWG decoder does, so that the page and core/ show the same text.
Utf8Step utf8_step(std::string_view text, std::size_t at);

// The longest prefix of at most `limit` bytes that does not cut a character.
std::string_view utf8_prefix(std::string_view text, std::size_t limit);

}  // namespace ledger
