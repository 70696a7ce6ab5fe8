#include "core/config/fields.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace ledger {
namespace {

std::string range(const std::string& low, const std::string& high) {
  return low + ".." + high;
}

// A number as JSON spells it: "1e-06", "65536".
std::string spelled(double number) {
  JsonWriter out;
  out.value(number);
  return out.take();
}

}  // namespace

Problem wrong_type(std::string_view where, const Json& json, std::string_view expected) {
  return {ProblemCode::wrong_type, std::string(where), json.brief(), std::string(expected), ""};
}

std::optional<Problem> read_unsigned(const Json& json, std::string_view where, std::uint64_t low, std::uint64_t high,
                                     std::uint64_t& value) {
  const std::optional<double> number = json.as_real();
  if (!number || std::floor(*number) != *number) return wrong_type(where, json, "integer");
  const std::optional<std::uint64_t> whole = json.as_unsigned();  // nothing: negative, or a real of 2^53 and more
  if (!whole || *whole < low || *whole > high) {
    return Problem{ProblemCode::out_of_range, std::string(where), json.brief(),
                   range(std::to_string(low), std::to_string(high)), ""};
  }
  value = *whole;
  return std::nullopt;
}

std::optional<Problem> read_real(const Json& json, std::string_view where, double low, double high, double& value) {
  const std::optional<double> number = json.as_real();
  if (!number) return wrong_type(where, json, "number");
  if (!(*number >= low && *number <= high)) {
    return Problem{ProblemCode::out_of_range, std::string(where), json.brief(), range(spelled(low), spelled(high)), ""};
  }
  value = *number;
  return std::nullopt;
}

std::optional<Problem> read_bool(const Json& json, std::string_view where, bool& value) {
  const std::optional<bool> flag = json.as_bool();
  if (!flag) return wrong_type(where, json, "boolean");
  value = *flag;
  return std::nullopt;
}

Fields::Found Fields::find(std::string_view key) const {
  const auto in_document = [this](std::string_view name) {
    const Json* json = object_.find(name);
    if (json == nullptr) return json;
    if (std::none_of(used_.begin(), used_.end(), [&](const Used& used) { return used.first == name; })) {
      used_.emplace_back(name, json);
    }
    return json->is_null() ? nullptr : json;
  };
  if (const Json* json = in_document(key)) return {key, json};
  for (const KeyAlias& alias : aliases_) {
    if (alias.key != key) continue;
    if (const Json* json = in_document(alias.name)) return {alias.name, json};
  }
  const Json* json = defaults_ == nullptr ? nullptr : defaults_->find(key);
  return {key, json == nullptr || json->is_null() ? nullptr : json};
}

bool Fields::has_default(std::string_view key) const {
  return defaults_ != nullptr && defaults_->find(key) != nullptr;
}

const Json* Fields::given(std::string_view key) const {
  return find(key).json;
}

std::string_view Fields::name_of(std::string_view key) const {
  return find(key).name;
}

bool Fields::is_null(std::string_view key) const {
  const Json* json = object_.find(key);
  return json != nullptr && json->is_null();
}

void Fields::integer(std::string_view key, std::uint64_t low, std::uint64_t high, std::uint64_t& value) {
  const Found found = find(key);
  if (ok() && found.json != nullptr) problem_ = read_unsigned(*found.json, found.name, low, high, value);
}

void Fields::real(std::string_view key, double low, double high, double& value) {
  const Found found = find(key);
  if (ok() && found.json != nullptr) problem_ = read_real(*found.json, found.name, low, high, value);
}

void Fields::flag(std::string_view key, bool& value) {
  const Found found = find(key);
  if (ok() && found.json != nullptr) problem_ = read_bool(*found.json, found.name, value);
}

void Fields::text(std::string_view key, std::string& value) {
  const Found found = find(key);
  if (!ok() || found.json == nullptr) return;
  const std::optional<std::string_view> text = found.json->as_string();
  if (!text) return fail(wrong_type(found.name, *found.json, "string"));
  value = *text;
}

void Fields::fail(Problem problem) {
  if (ok()) problem_ = std::move(problem);
}

}  // namespace ledger
