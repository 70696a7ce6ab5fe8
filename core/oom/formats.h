// formats.h - the formats of out-of-memory messages as rows: an anchor, and the words beside each number.
#pragma once

#include <span>
#include <string_view>

#include "core/oom/messages.h"

namespace ledger::oom {

enum class Side : std::uint8_t { before, after, bare_after };  // of the words; bare: bytes without a unit

struct FieldWords {
  Field field;
  std::string_view words;
  Side side;
};

struct Format {
  std::string_view anchor;
  const char* id;
  const char* device;
  Memory memory;
  std::span<const FieldWords> fields;
  bool numbers_needed;  // the anchor's words also stand in prose: without a number it is no message
};

// Earlier rows win where two anchors meet in one place.
std::span<const Format> formats();

// The version that first wrote a text like this, by marks in it; the last row that matches counts.
struct Edition {
  std::string_view mark;
  const char* id;
};
std::span<const Edition> editions();

}  // namespace ledger::oom
