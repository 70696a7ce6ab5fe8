#include "core/config/recipe_text.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "core/config/memory_size.h"

namespace ledger {
namespace {

struct FlagWord {
  std::string_view word;
  bool value;
};

constexpr FlagWord kFlagWords[] = {
    {"true", true},   {"1", true},  {"yes", true}, {"on", true},   {"", true},  // "--compile" alone
    {"false", false}, {"0", false}, {"no", false}, {"off", false},
};

std::optional<Json> flag_from(std::string_view text) {
  for (const FlagWord& known : kFlagWords) {
    if (text == known.word) return Json::of_bool(known.value);
  }
  return std::nullopt;
}

Json names_from(std::string_view text) {
  std::vector<Json> names;
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t end = std::min(text.find(',', start), text.size());
    names.push_back(Json::of_string(std::string(text.substr(start, end - start))));
    start = end + 1;
  }
  return Json::of_array(std::move(names));
}

std::optional<Json> number_from(std::string_view text) {
  Result<Json> number = parse_json(text);
  if (!number.ok() || !number.value().as_real()) return std::nullopt;
  return std::move(number.value());
}

std::optional<Json> size_from(std::string_view text) {
  const std::optional<Bytes> bytes = memory_size(text);
  return bytes ? std::optional<Json>(Json::of_unsigned(*bytes)) : std::nullopt;
}

}  // namespace

std::optional<Json> recipe_json_from_text(const RecipeKey& key, std::string_view text) {
  switch (key.kind) {
    case RecipeKey::Kind::choice:
    case RecipeKey::Kind::text:
      return Json::of_string(std::string(text));
    case RecipeKey::Kind::flag:
      return flag_from(text);
    case RecipeKey::Kind::names:
      return names_from(text);
    case RecipeKey::Kind::real:
      return number_from(text);
    case RecipeKey::Kind::integer:
      break;
  }
  const bool is_size = std::string_view(key.name).ends_with("_bytes");
  return is_size ? size_from(text) : number_from(text);
}

}  // namespace ledger
