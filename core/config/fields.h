// fields.h - typed reading of one JSON object: the first Problem is kept, everything after it is skipped.
//
// A reader can so be written as a list of fields, one line each, with a single check at the end.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/json.h"
#include "core/base/problem.h"

namespace ledger {

inline constexpr double kAboveZero = std::numeric_limits<double>::min();  // as a lower bound: "more than 0"

// Checks on single values; `where` names the key in the Problem.
std::optional<Problem> read_unsigned(const Json& json, std::string_view where, std::uint64_t low, std::uint64_t high,
                                     std::uint64_t& value);
std::optional<Problem> read_real(const Json& json, std::string_view where, double low, double high, double& value);
std::optional<Problem> read_bool(const Json& json, std::string_view where, bool& value);

Problem wrong_type(std::string_view where, const Json& json, std::string_view expected);

// `name` is read where `key` is absent.
struct KeyAlias {
  std::string_view key, name;
};

// An absent key and a JSON null leave the value as it is, i.e. at its default: that of `defaults`, an object that is
// looked into after the document, or else what the value was.
class Fields {
 public:
  explicit Fields(const Json& object, const Json* defaults = nullptr, std::span<const KeyAlias> aliases = {})
      : object_(object), defaults_(defaults), aliases_(aliases) {}

  const Json* given(std::string_view key) const;         // nullptr when absent or null, and not among the defaults
  bool is_null(std::string_view key) const;              // the document says null
  std::string_view name_of(std::string_view key) const;  // as the document spells it
  bool has_default(std::string_view key) const;          // the defaults name it, be it as null
  const Json& object() const { return object_; }

  // What the document gave of all that was asked for, in the order of asking.
  using Used = std::pair<std::string_view, const Json*>;
  const std::vector<Used>& used() const { return used_; }

  void integer(std::string_view key, std::uint64_t low, std::uint64_t high, std::uint64_t& value);
  void real(std::string_view key, double low, double high, double& value);
  void flag(std::string_view key, bool& value);
  void text(std::string_view key, std::string& value);

  void fail(Problem problem);  // only the first counts
  bool ok() const { return !problem_; }
  const std::optional<Problem>& problem() const { return problem_; }

 private:
  struct Found {
    std::string_view name;
    const Json* json;
  };
  Found find(std::string_view key) const;

  const Json& object_;
  const Json* defaults_;
  std::span<const KeyAlias> aliases_;
  std::optional<Problem> problem_;
  mutable std::vector<Used> used_;
};

}  // namespace ledger
