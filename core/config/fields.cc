#include "core/config/fields.h"

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

const Json* Fields::given(std::string_view key) const {
  const Json* json = object_.find(key);
  return json == nullptr || json->is_null() ? nullptr : json;
}

void Fields::integer(std::string_view key, std::uint64_t low, std::uint64_t high, std::uint64_t& value) {
  const Json* json = given(key);
  if (ok() && json != nullptr) problem_ = read_unsigned(*json, key, low, high, value);
}

void Fields::real(std::string_view key, double low, double high, double& value) {
  const Json* json = given(key);
  if (ok() && json != nullptr) problem_ = read_real(*json, key, low, high, value);
}

void Fields::flag(std::string_view key, bool& value) {
  const Json* json = given(key);
  if (ok() && json != nullptr) problem_ = read_bool(*json, key, value);
}

void Fields::text(std::string_view key, std::string& value) {
  const Json* json = given(key);
  if (!ok() || json == nullptr) return;
  const std::optional<std::string_view> text = json->as_string();
  if (!text) return fail(wrong_type(key, *json, "string"));
  value = *text;
}

void Fields::fail(Problem problem) {
  if (ok()) problem_ = std::move(problem);
}

}  // namespace ledger
