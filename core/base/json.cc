#include "core/base/json.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "core/base/order.h"
#include "core/base/utf8.h"

namespace ledger {
namespace {

constexpr double kExactLimit = 9007199254740992.0;  // 2^53: below it every integer is a double

bool named_before(const Json::Member& a, const Json::Member& b) {
  return a.first < b.first;
}

// Keeps the last of equal keys, in order of first appearance (what a Python dict does).
void drop_repeated_keys(std::vector<Json::Member>& members) {
  const std::vector<std::uint32_t> order = stable_order<Json::Member, named_before>(members);
  std::vector<bool> dropped(members.size(), false);
  bool any = false;
  for (std::size_t i = 0; i < order.size();) {
    std::size_t last = i;
    while (last + 1 < order.size() && members[order[last + 1]].first == members[order[i]].first)
      ++last;
    if (last > i) std::swap(members[order[i]].second, members[order[last]].second);
    for (std::size_t k = i + 1; k <= last; ++k)
      dropped[order[k]] = any = true;
    i = last + 1;
  }
  if (!any) return;
  std::vector<Json::Member> kept;
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (!dropped[i]) kept.push_back(std::move(members[i]));
  }
  members = std::move(kept);
}

}  // namespace

Json Json::of_bool(bool value) {
  Json json;
  json.type_ = Type::boolean;
  json.boolean_ = value;
  return json;
}

Json Json::of_integer(std::int64_t value) {
  Json json;
  json.type_ = Type::integer;
  json.negative_ = value < 0;
  const auto bits = static_cast<std::uint64_t>(value);
  json.integer_ = json.negative_ ? ~bits + 1 : bits;
  return json;
}

Json Json::of_unsigned(std::uint64_t value) {
  Json json;
  json.type_ = Type::integer;
  json.integer_ = value;
  return json;
}

Json Json::of_real(double value) {
  Json json;
  json.type_ = Type::real;
  json.real_ = value;
  return json;
}

Json Json::of_string(std::string value) {
  Json json;
  json.type_ = Type::string;
  json.string_ = std::move(value);
  return json;
}

Json Json::of_array(std::vector<Json> items) {
  Json json;
  json.type_ = Type::array;
  json.items_ = std::move(items);
  return json;
}

Json Json::of_object(std::vector<Member> members) {
  Json json;
  json.type_ = Type::object;
  drop_repeated_keys(members);
  json.members_ = std::move(members);
  return json;
}

const Json* Json::find(std::string_view key) const {
  const auto at = std::find_if(members_.begin(), members_.end(), [&](const Member& m) { return m.first == key; });
  return at == members_.end() ? nullptr : &at->second;
}

std::optional<std::uint64_t> Json::unsigned_at(std::string_view key) const {
  const Json* value = find(key);
  return value == nullptr ? std::nullopt : value->as_unsigned();
}

std::optional<bool> Json::as_bool() const {
  if (type_ != Type::boolean) return std::nullopt;
  return boolean_;
}

std::optional<std::uint64_t> Json::as_unsigned() const {
  if (type_ == Type::integer && (!negative_ || integer_ == 0)) return integer_;
  if (type_ == Type::real && real_ >= 0 && real_ < kExactLimit && std::floor(real_) == real_) {
    return static_cast<std::uint64_t>(real_);
  }
  return std::nullopt;
}

std::optional<double> Json::as_real() const {
  if (type_ == Type::real) return real_;
  if (type_ != Type::integer) return std::nullopt;
  const auto magnitude = static_cast<double>(integer_);
  return negative_ ? -magnitude : magnitude;
}

std::optional<std::string_view> Json::as_string() const {
  if (type_ != Type::string) return std::nullopt;
  return std::string_view(string_);
}

std::string Json::brief(std::size_t limit) const {
  JsonWriter out;
  out.stop_after(limit);
  out.value(*this);
  const std::string whole = out.take();
  if (whole.size() <= limit) return whole;
  constexpr std::string_view kCut = "...";
  if (limit < kCut.size()) return std::string(utf8_prefix(whole, limit));
  return std::string(utf8_prefix(whole, limit - kCut.size())).append(kCut);
}

const char* type_name(Json::Type type) {
  constexpr const char* kNames[] = {"null", "boolean", "integer", "number", "string", "array", "object"};
  return kNames[static_cast<std::size_t>(type)];
}

}  // namespace ledger
