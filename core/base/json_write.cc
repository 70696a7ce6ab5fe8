// json_write.cc - JsonWriter: always valid JSON, the same bytes natively and under WASM.

#include <algorithm>
#include <cmath>

#include "core/base/json.h"
#include "core/base/real_text.h"
#include "core/base/utf8.h"

namespace ledger {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

void append_escape(std::string& out, char c) {
  constexpr std::string_view kNamed = "\"\\\b\f\n\r\t";
  constexpr std::string_view kLetters = "\"\\bfnrt";
  const std::size_t named = kNamed.find(c);
  if (named != std::string_view::npos) {
    out += '\\';
    out += kLetters[named];
    return;
  }
  constexpr std::string_view kHex = "0123456789abcdef";
  const auto byte = static_cast<unsigned char>(c);
  out += "\\u00";
  out += kHex[byte >> 4];
  out += kHex[byte & 15];
}

bool needs_escape(char c) {
  return static_cast<unsigned char>(c) < 0x20 || c == '"' || c == '\\';
}

bool stands_as_it_is(char c) {
  return static_cast<unsigned char>(c) < 0x80 && !needs_escape(c);
}

void append_quoted(std::string& out, std::string_view text) {
  out += '"';
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t from = at;  // names are plain throughout
    while (at < text.size() && stands_as_it_is(text[at]))
      ++at;
    out.append(text.substr(from, at - from));
    if (at == text.size()) break;
    const Utf8Step step = utf8_step(text, at);
    if (!step.valid) {
      out += kReplacement;
    } else if (needs_escape(text[at])) {
      append_escape(out, text[at]);
    } else {
      out += text.substr(at, step.bytes);
    }
    at += step.bytes;
  }
  out += '"';
}

// Appends "d.ddd" x 10^exponent, its digits alone given, as printf's %g spells it.
void append_placed(std::string& out, std::string_view digits, int exponent, int most_places) {
  if (exponent < -4 || exponent >= most_places) {
    out += digits[0];
    if (digits.size() > 1) out.append(1, '.').append(digits.substr(1));
    const int size = exponent < 0 ? -exponent : exponent;
    out.append(exponent < 0 ? "e-" : "e+").append(size < 10 ? "0" : "").append(std::to_string(size));
    return;
  }
  if (exponent < 0) {
    out.append("0.").append(static_cast<std::size_t>(-exponent - 1), '0').append(digits);
    return;
  }
  const std::size_t whole = static_cast<std::size_t>(exponent) + 1;
  out.append(digits.substr(0, whole));
  if (digits.size() < whole) out.append(whole - digits.size(), '0');
  if (digits.size() > whole) out.append(1, '.').append(digits.substr(whole));
}

// 15, 16 or 17 digits: the first that reads back equal. 17 always do (IEEE 754 double). Trailing zeros are dropped.
void append_shortest(std::string& out, double number) {
  char text[kRealDigits];
  int precision = 14;
  write_digits(text, precision, number);
  while (precision < 16 && read_digits(text) != number)
    write_digits(text, ++precision, number);
  const std::string_view written = text;
  const std::size_t mark = written.find('e');
  int exponent = 0;
  for (const char c : written.substr(mark + 2))
    exponent = 10 * exponent + (c - '0');
  std::string digits;
  for (const char c : written.substr(0, mark)) {
    if (c >= '0' && c <= '9') digits += c;
  }
  digits.erase(std::max<std::size_t>(digits.find_last_not_of('0') + 1, 1));
  if (std::signbit(number)) out += '-';
  append_placed(out, digits, written[mark + 1] == '-' ? -exponent : exponent, precision + 1);
}

}  // namespace

void JsonWriter::separate() {
  if (needs_comma_) out_ += ',';
  needs_comma_ = true;
}

JsonWriter& JsonWriter::begin_object() {
  separate();
  out_ += '{';
  needs_comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::end_object() {
  out_ += '}';
  needs_comma_ = true;
  return *this;
}

JsonWriter& JsonWriter::begin_array() {
  separate();
  out_ += '[';
  needs_comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::end_array() {
  out_ += ']';
  needs_comma_ = true;
  return *this;
}

JsonWriter& JsonWriter::key(std::string_view name) {
  separate();
  append_quoted(out_, name);
  out_ += ':';
  needs_comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::value(std::string_view text) {
  separate();
  append_quoted(out_, text);
  return *this;
}

JsonWriter& JsonWriter::value(bool flag) {
  separate();
  out_ += flag ? "true" : "false";
  return *this;
}

JsonWriter& JsonWriter::value(std::uint64_t number) {
  separate();
  out_ += std::to_string(number);
  return *this;
}

JsonWriter& JsonWriter::value(std::int64_t number) {
  separate();
  out_ += std::to_string(number);
  return *this;
}

JsonWriter& JsonWriter::value(double number) {
  if (!std::isfinite(number)) return null();
  separate();
  append_shortest(out_, number);
  return *this;
}

JsonWriter& JsonWriter::null() {
  separate();
  out_ += "null";
  return *this;
}

void JsonWriter::write_integer(const Json& tree) {
  if (tree.negative_ && tree.integer_ != 0) {
    separate();
    out_ += '-';
    out_ += std::to_string(tree.integer_);
  } else {
    value(tree.integer_);
  }
}

// Recursion is bounded by JsonLimits::depth for parsed trees; trees made by hand are shallow.
JsonWriter& JsonWriter::value(const Json& tree) {
  if (out_.size() > stop_after_) return *this;
  switch (tree.type_) {
    case Json::Type::null:
      return null();
    case Json::Type::boolean:
      return value(tree.boolean_);
    case Json::Type::integer:
      write_integer(tree);
      return *this;
    case Json::Type::real:
      return value(tree.real_);
    case Json::Type::string:
      return value(utf8_prefix(tree.string_, stop_after_));
    case Json::Type::array:
      begin_array();
      for (const Json& item : tree.items_)
        value(item);
      return end_array();
    case Json::Type::object:
      begin_object();
      for (const auto& [name, item] : tree.members_) {
        if (out_.size() > stop_after_) break;
        key(name).value(item);
      }
      return end_object();
  }
  return *this;
}

}  // namespace ledger
