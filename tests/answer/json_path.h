// json_path.h - numbers and texts of a JSON document by dotted path.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "core/base/json.h"

namespace ledger {

inline Json parsed(std::string_view text) {
  Result<Json> result = parse_json(text, {.bytes = 64u << 20});
  EXPECT_TRUE(result.ok()) << text.substr(0, 200);
  return result.ok() ? std::move(result.value()) : Json();
}

// at(report, "peaks.tensor_bytes"), at(report, "phases.0.name"); null when there is no such place.
inline const Json& at(const Json& root, std::string_view path) {
  static const Json none;
  const Json* here = &root;
  while (!path.empty()) {
    const std::size_t dot = path.find('.');
    const std::string_view step = path.substr(0, dot);
    path = dot == std::string_view::npos ? std::string_view() : path.substr(dot + 1);
    if (!here->items().empty()) {
      const auto index = static_cast<std::size_t>(std::stoul(std::string(step)));
      here = index < here->items().size() ? &here->items()[index] : nullptr;
    } else {
      here = here->find(step);
    }
    if (here == nullptr) return none;
  }
  return *here;
}

inline std::uint64_t number(const Json& root, std::string_view path) {
  const auto value = at(root, path).as_unsigned();
  EXPECT_TRUE(value) << path << " is no unsigned integer";
  return value.value_or(0);
}

inline std::int64_t signed_number(const Json& root, std::string_view path) {
  return static_cast<std::int64_t>(at(root, path).as_real().value_or(0));
}

inline std::string text(const Json& root, std::string_view path) {
  return std::string(at(root, path).as_string().value_or(""));
}

}  // namespace ledger
