// json.h - reading and writing JSON without exceptions; json_parse.cc is the only file that knows a JSON library.
//
// Reading: nlohmann's SAX parser fills a small immutable tree, so malformed input is a Problem with line and column,
// never an abort. Writing: a streaming writer with fixed key order and exact integers, so that native and WASM reports
// are the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/problem.h"

namespace ledger {

class Json {
 public:
  enum class Type : std::uint8_t { null, boolean, integer, real, string, array, object };
  using Member = std::pair<std::string, Json>;

  Json() = default;
  static Json of_bool(bool value);
  static Json of_integer(std::int64_t value);
  static Json of_unsigned(std::uint64_t value);
  static Json of_real(double value);
  static Json of_string(std::string value);
  static Json of_array(std::vector<Json> items);
  static Json of_object(std::vector<Member> members);  // on equal keys the last one counts, as in Python

  Type type() const { return type_; }
  bool is_null() const { return type_ == Type::null; }
  bool is_object() const { return type_ == Type::object; }
  bool is_array() const { return type_ == Type::array; }
  bool is_string() const { return type_ == Type::string; }

  // The member named `key`, or nullptr when absent or when this is not an object. A JSON null is returned as a null
  // Json.
  const Json* find(std::string_view key) const;
  // The number of the member named `key`; nullopt when it is absent or no such number.
  std::optional<std::uint64_t> unsigned_at(std::string_view key) const;
  const std::vector<Member>& members() const { return members_; }  // empty unless an object
  const std::vector<Json>& items() const { return items_; }        // empty unless an array

  std::optional<bool> as_bool() const;
  std::optional<std::uint64_t> as_unsigned()
      const;                              // integers >= 0, and reals that are exact non-negative integers below 2^53
  std::optional<double> as_real() const;  // any number
  std::optional<std::string_view> as_string() const;

  // Short rendering for messages: the value as JSON, at most `limit` bytes, cut at a UTF-8 boundary and then ending in
  // "...".
  std::string brief(std::size_t limit = 80) const;

 private:
  friend class JsonWriter;
  Type type_ = Type::null;
  bool boolean_ = false;
  bool negative_ = false;
  std::uint64_t integer_ = 0;  // magnitude when type_ == integer
  double real_ = 0;
  std::string string_;
  std::vector<Json> items_;
  std::vector<Member> members_;
};

const char* type_name(Json::Type type);  // "null", "boolean", "integer", "number", "string", "array", "object"

struct JsonLimits {
  std::uint64_t bytes = 8u << 20;  // config.json files are a few KB; anything near this is another file
  std::uint32_t depth = 64;
  std::uint64_t values = 1u << 20;  // a value takes some 100 bytes in memory, two in the text "[0,0,...]"
};

// Whole-document parse (UTF-8, a leading BOM is skipped). Problems: json_syntax ("line:column" of the offending word,
// or within a string of the offending character, in characters; read is "end_of_text" when it ends too early),
// json_too_large (where: "bytes" or "values"), json_too_deep. Integers beyond 64 bits become reals. NaN and Infinity,
// which Python writes, are json_syntax: they are not JSON.
Result<Json> parse_json(std::string_view text, JsonLimits limits = {});

class JsonWriter {
 public:
  JsonWriter& begin_object();
  JsonWriter& end_object();
  JsonWriter& begin_array();
  JsonWriter& end_array();
  JsonWriter& key(std::string_view name);
  JsonWriter& value(std::string_view text);
  JsonWriter& value(const char* text) { return value(std::string_view(text)); }
  JsonWriter& value(const std::string& text) { return value(std::string_view(text)); }
  JsonWriter& value(bool flag);
  JsonWriter& value(std::uint64_t number);
  JsonWriter& value(std::int64_t number);
  JsonWriter& value(std::uint32_t number) { return value(static_cast<std::uint64_t>(number)); }
  JsonWriter& value(std::int32_t number) { return value(static_cast<std::int64_t>(number)); }
  JsonWriter& value(double number);  // fewest digits from 15 up that read back equal; NaN and infinities become null
  JsonWriter& value(const Json& tree);
  JsonWriter& null();

  template <class T>
  JsonWriter& member(std::string_view name, const T& item) {
    key(name);
    return value(item);
  }

  std::string take() { return std::move(out_); }

 private:
  friend class Json;
  void stop_after(std::size_t bytes) { stop_after_ = bytes; }  // what follows may be left out; for Json::brief
  void separate();
  void write_integer(const Json& tree);
  std::string out_;
  std::size_t stop_after_ = std::string::npos;
  bool needs_comma_ = false;
};

}  // namespace ledger
