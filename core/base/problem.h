// problem.h - failures as values: a code, where it happened, what was read and what was expected.
//
// core/ is built without exceptions and without prose. A Problem carries ids and data only; probe/texts.cc and
// web/src/i18n turn its code into a sentence. Codes are stable: they stand in URLs, tests and docs/problems.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace ledger {

enum class ProblemCode : std::uint8_t {
  json_syntax,          // where: "line:column"; read: the offending token
  json_too_large,       // read: size in bytes; expected: largest size in bytes
  json_too_deep,        // expected: deepest nesting
  not_an_object,        // read: the JSON type found
  missing_key,          // where: the key; expected: its values
  wrong_type,           // where: the key; read: what stands there; expected: type name
  out_of_range,         // where: the key; read: the number; expected: "lo..hi"
  not_one_of,           // where: the key; read: the value; expected: "a|b|c"; nearest: best guess
  unknown_key,          // where: the key; nearest: the known key most like it
  wrong_file,           // read: which file this is ("tokenizer_config", "generation_config", ...)
  unknown_model_type,   // read: model_type; expected: known families
  inconsistent_config,  // where: the keys; read: values; expected: the rule
  unsupported_recipe,   // where: the keys; read: values; expected: reason id
  too_large_to_trace,   // read: estimated events; expected: limit
  overflow,             // a total exceeds 64 bits
  schema_version,       // read: version found; expected: versions understood
  count_                // number of codes
};

// Stable snake_case id, e.g. "missing_key".
const char* problem_id(ProblemCode code);

struct Problem {
  ProblemCode code;
  std::string where;     // key, path or position
  std::string read;      // what was found there, shortened to 80 characters
  std::string expected;  // language-neutral: "1..1024", "a|b|c", a type name or a reason id
  std::string nearest;   // closest valid spelling, or empty
};

// A value or a Problem. Read problem() only when !ok().
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}              // NOLINT(google-explicit-constructor)
  Result(Problem problem) : problem_(std::move(problem)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return value_.has_value(); }
  T& value() { return *value_; }
  const T& value() const { return *value_; }
  const Problem& problem() const { return *problem_; }

 private:
  std::optional<T> value_;
  std::optional<Problem> problem_;
};

}  // namespace ledger
