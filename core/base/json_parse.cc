// json_parse.cc - text to tree through nlohmann's SAX parser; the only file that includes it.
//
// The SAX interface hands over errors as calls, so nothing throws here, and the parser keeps its own stack, so nesting
// costs no C stack. JSON_NOEXCEPTION turns every throw of the DOM classes, which this file never touches, into abort().

#define JSON_NOEXCEPTION 1
#define JSON_USE_IMPLICIT_CONVERSIONS 0
#include <nlohmann/json.hpp>

#include "core/base/json.h"
#include "core/base/utf8.h"

namespace ledger {
namespace {

using Numbers = nlohmann::json;

constexpr std::size_t kShown = 80;  // bytes of an offending token, as Problem::read promises
constexpr std::string_view kUtf8Bom = "\xEF\xBB\xBF";

// The token that ends at byte `end`, lengthened to the whole word: nlohmann stops in "NaN" or "True" at the first
// letter that cannot be, and a single letter says little.
std::string whole_word(std::string token, std::string_view text, std::size_t end) {
  const auto is_word = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
  };
  const bool word = !token.empty() && token.front() != '"' && is_word(token.back());
  while (word && end < text.size() && is_word(text[end]) && token.size() < kShown)
    token += text[end++];
  return std::string(utf8_prefix(token, kShown));
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
    const std::size_t at = position == 0 ? 0 : position - 1;
    const std::string read = at < text_.size() ? whole_word(token, text_, position) : "end_of_text";
    problem_ = Problem{ProblemCode::json_syntax, line_and_column(text_, at), read, "", ""};
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
  TreeBuilder builder(text, limits);
  const bool parsed = Numbers::sax_parse(
      text.begin(), text.begin() + static_cast<std::ptrdiff_t>(std::min(nul, text.size())), &builder);
  Result<Json> result = builder.take(parsed);
  if (result.ok() && nul != std::string_view::npos) {
    return Problem{ProblemCode::json_syntax, line_and_column(text, nul), "<U+0000>", "", ""};
  }
  return result;
}

}  // namespace ledger
