// json_parse.cc - text to tree through nlohmann's SAX parser; the only file that includes it.
//
// The SAX interface hands over errors as calls, so nothing throws here, and the parser keeps its own stack, so nesting
// costs no C stack. JSON_NOEXCEPTION turns every throw of the DOM classes, which this file never touches, into abort().

#include <algorithm>

#define JSON_NOEXCEPTION 1
#define JSON_USE_IMPLICIT_CONVERSIONS 0
#include <nlohmann/json.hpp>

#include "core/base/json.h"
#include "core/base/utf8.h"

namespace ledger {
namespace {

using Numbers = nlohmann::json;

constexpr std::size_t kShown = 80;  // bytes of an offending token, as Problem::read promises
constexpr std::string_view kEndOfText = "end_of_text";
constexpr std::string_view kUtf8Bom = "\xEF\xBB\xBF";

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
         c == '-' || c == '+';
}

// Start of the string that `token` ends in or with, or npos. nlohmann's token may begin with what stood before it.
std::size_t string_start(std::string_view token) {
  std::size_t start = std::string_view::npos;
  bool inside = false;
  for (std::size_t i = 0; i < token.size(); ++i) {
    if (inside && token[i] == '\\') {
      ++i;
    } else if (token[i] == '"') {
      inside = !inside;
      if (inside) start = i;
    }
  }
  return inside || token.ends_with('"') ? start : std::string_view::npos;
}

struct Offence {
  std::size_t at;    // byte to point at
  std::string read;  // as a person would name it
};

// What stands at byte `at`: a string, a whole word from its first letter ("NaN", of which nlohmann reads one letter),
// or a character. Bytes that are no text are spelled as hexadecimal numbers.
Offence offence(std::string_view token, std::string_view text, std::size_t at) {
  if (at >= text.size()) return {text.size(), std::string(kEndOfText)};
  const std::size_t start = string_start(token);
  if (start != std::string_view::npos) return {at, std::string(utf8_prefix(token.substr(start), kShown))};
  std::size_t first = at;
  std::size_t last = at;
  while (first > 0 && is_word(text[at]) && is_word(text[first - 1]))
    --first;
  while (last < text.size() && is_word(text[at]) && is_word(text[last]))
    ++last;
  if (last > first) return {first, std::string(text.substr(first, std::min(last - first, kShown)))};
  const Utf8Step step = utf8_step(text, at);
  if (step.valid && static_cast<unsigned char>(text[at]) >= 0x20) return {at, std::string(text.substr(at, step.bytes))};
  constexpr std::string_view kHex = "0123456789ABCDEF";
  const auto byte = static_cast<unsigned char>(text[at]);
  return {at, std::string("0x") + kHex[byte >> 4] + kHex[byte & 15]};
}

std::string line_and_column(std::string_view text, std::size_t at) {
  std::size_t line = 1;
  std::size_t column = 1;
  for (std::size_t i = 0; i < at && i < text.size(); ++i) {
    column = text[i] == '\n' ? 1 : column + ((text[i] & '\xC0') == '\x80' ? 0u : 1u);
    line += text[i] == '\n' ? 1u : 0u;
  }
  return std::to_string(line) + ":" + std::to_string(column);
}

// Values under construction. Each open container collects its members here and becomes one Json when it closes.
class TreeBuilder {
 public:
  TreeBuilder(std::string_view text, JsonLimits limits) : text_(text), limits_(limits) {}

  bool null() { return add({}); }
  bool boolean(bool value) { return add(Json::of_bool(value)); }
  bool number_integer(Numbers::number_integer_t value) { return add(Json::of_integer(value)); }
  bool number_unsigned(Numbers::number_unsigned_t value) { return add(Json::of_unsigned(value)); }
  bool number_float(Numbers::number_float_t value, const std::string&) { return add(Json::of_real(value)); }
  bool string(std::string& value) { return add(Json::of_string(std::move(value))); }
  bool binary(Numbers::binary_t&) { return false; }  // only binary formats have these
  bool start_object(std::size_t) { return open(true); }
  bool start_array(std::size_t) { return open(false); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool key(std::string& name) {
    open_.back().key = std::move(name);
    return true;
  }

  // `position` counts the bytes read, the one that could not be included; the end of the text counts as one more.
  template <class Error>
  bool parse_error(std::size_t position, const std::string& token, const Error&) {
    const Offence found = offence(token, text_, position == 0 ? 0 : position - 1);
    problem_ = Problem{ProblemCode::json_syntax, line_and_column(text_, found.at), found.read, "", ""};
    return false;
  }

  Result<Json> take(bool parsed) {
    if (problem_) return *problem_;
    // Unreachable with a parser that reports every failure; kept so that a future one cannot make a document of
    // nothing.
    if (!parsed) return Problem{ProblemCode::json_syntax, "1:1", "", "", ""};
    return std::move(root_);
  }

 private:
  struct Open {
    bool object = false;
    std::string key;
    std::vector<Json::Member> members;
    std::vector<Json> items;
  };

  bool open(bool object) {
    if (open_.size() >= limits_.depth) {
      problem_ = Problem{ProblemCode::json_too_deep, "", "", std::to_string(limits_.depth), ""};
      return false;
    }
    open_.emplace_back();
    open_.back().object = object;
    return true;
  }

  bool close() {
    Open done = std::move(open_.back());
    open_.pop_back();
    return add(done.object ? Json::of_object(std::move(done.members)) : Json::of_array(std::move(done.items)));
  }

  bool add(Json value) {
    if (++values_ > limits_.values) {
      problem_ =
          Problem{ProblemCode::json_too_large, "values", std::to_string(values_), std::to_string(limits_.values), ""};
      return false;
    }
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (open_.back().object) {
      open_.back().members.emplace_back(std::move(open_.back().key), std::move(value));
    } else {
      open_.back().items.push_back(std::move(value));
    }
    return true;
  }

  std::string_view text_;
  JsonLimits limits_;
  std::vector<Open> open_;
  std::uint64_t values_ = 0;
  Json root_;
  std::optional<Problem> problem_;
};

}  // namespace

Result<Json> parse_json(std::string_view text, JsonLimits limits) {
  if (text.size() > limits.bytes) {
    return Problem{ProblemCode::json_too_large, "bytes", std::to_string(text.size()), std::to_string(limits.bytes), ""};
  }
  if (text.starts_with(kUtf8Bom)) text.remove_prefix(kUtf8Bom.size());
  // nlohmann takes a NUL for the end of the text and would accept whatever follows it.
  const std::size_t nul = text.find('\0');
  const std::string_view before_nul = text.substr(0, nul);
  TreeBuilder builder(before_nul, limits);
  Result<Json> result = builder.take(Numbers::sax_parse(before_nul.begin(), before_nul.end(), &builder));
  const bool ended_at_nul = result.ok() || result.problem().read == kEndOfText;
  if (nul != std::string_view::npos && ended_at_nul) {
    return Problem{ProblemCode::json_syntax, line_and_column(text, nul), "0x00", "", ""};
  }
  return result;
}

}  // namespace ledger
