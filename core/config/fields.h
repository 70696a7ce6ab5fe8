// fields.h - typed reading of one JSON object: the first Problem is kept, everything after it is skipped.
//
// A reader can so be written as a list of fields, one line each, with a single check at the end.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/json.h"
#include "core/base/problem.h"

namespace ledger {

// Checks on single values; `where` names the key in the Problem.
std::optional<Problem> read_unsigned(const Json& json, std::string_view where, std::uint64_t low, std::uint64_t high,
                                     std::uint64_t& value);
std::optional<Problem> read_real(const Json& json, std::string_view where, double low, double high, double& value);
std::optional<Problem> read_bool(const Json& json, std::string_view where, bool& value);

Problem wrong_type(std::string_view where, const Json& json, std::string_view expected);

// An absent key and a JSON null leave the value as it is, i.e. at its default.
class Fields {
 public:
  explicit Fields(const Json& object) : object_(object) {}

  const Json* given(std::string_view key) const;  // nullptr when absent or null

  void integer(std::string_view key, std::uint64_t low, std::uint64_t high, std::uint64_t& value);
  void real(std::string_view key, double low, double high, double& value);
  void flag(std::string_view key, bool& value);
  void text(std::string_view key, std::string& value);

  void fail(Problem problem);  // only the first counts
  bool ok() const { return !problem_; }
  const std::optional<Problem>& problem() const { return problem_; }

 private:
  const Json& object_;
  std::optional<Problem> problem_;
};

}  // namespace ledger
