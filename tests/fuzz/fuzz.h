// fuzz.h - what libFuzzer's targets share: bytes in, and a stop when something that must hold does not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "core/base/json.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace ledger {

// libFuzzer keeps the input of a run that aborts.
inline void must(bool holds, std::string_view what, std::string_view seen = {}) {
  if (holds) return;
  std::fprintf(stderr, "must hold: %.*s\n%.*s\n", static_cast<int>(what.size()), what.data(),
               static_cast<int>(seen.size()), seen.data());
  std::abort();
}

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

inline std::size_t characters(std::string_view utf8) {
  std::size_t count = 0;
  for (const char byte : utf8)
    count += (static_cast<unsigned char>(byte) & 0xC0u) != 0x80u ? 1 : 0;
  return count;
}

// A door's answer is JSON that this core reads again, with what was asked for or a problem that can be shown.
inline void must_be_an_answer(std::string_view answer, std::string_view name) {
  const Result<Json> document = parse_json(answer);
  must(document.ok(), "the answer is JSON", answer);
  const Json* problem = document.value().find("problem");
  if (!problem) {
    must(document.value().find(name) != nullptr, "the answer or a problem", answer);
    return;
  }
  const Json* read = problem->find("read");
  must(problem->find("code") != nullptr && read != nullptr, "a problem has a code and what was read", answer);
  const std::optional<std::string_view> shown = read->as_string();
  must(shown.has_value() && characters(*shown) <= 80, "what was read fits a line", answer);
}

}  // namespace ledger
