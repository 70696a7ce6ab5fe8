#include "core/oom/squash.h"

#include <algorithm>

#include "core/base/utf8.h"

namespace ledger::oom {
namespace {

bool is_word(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '-';
}

// Bytes of a character that carries no meaning here, or 0. Three-byte ones: box drawing and blocks (U+2500..U+259F),
// zero-width space, rich's arrow (U+2771) and the byte order mark.
std::size_t noise_bytes(std::string_view text) {
  constexpr std::string_view kNoise = " \t\r\n\v\f_*`";
  if (kNoise.find(text[0]) != std::string_view::npos || text[0] == '\0') return 1;
  if (text.starts_with("\xc2\xa0")) return 2;
  if (text.size() < 3) return 0;
  const auto second = static_cast<unsigned char>(text[1]);
  if (text[0] == '\xe2' && second >= 0x94 && second <= 0x96) return 3;
  for (const std::string_view mark : {"\xe2\x80\x8b", "\xe2\x9d\xb1", "\xef\xbb\xbf"}) {
    if (text.starts_with(mark)) return 3;
  }
  return 0;
}

// ESC [ ... letter: colours and cursor moves.
std::size_t escape_bytes(std::string_view text) {
  if (text.size() < 2 || text[0] != '\x1b' || text[1] != '[') return 0;
  std::size_t at = 2;
  while (at < text.size() && at < 32 && (is_digit(text[at]) || text[at] == ';' || text[at] == '?'))
    ++at;
  return at < text.size() ? at + 1 : at;
}

// "[rank3]:" and "[0]:", with or without white space behind.
std::size_t bracket_prefix(std::string_view line) {
  if (!line.starts_with("[")) return 0;
  const std::size_t close = line.find("]:");
  if (close > 12) return 0;  // npos as well
  return std::all_of(line.begin() + 1, line.begin() + static_cast<std::ptrdiff_t>(close), is_word) ? close + 2 : 0;
}

// "0: ", "worker-0: ": a number, or a name that ends in a number, then colon and space.
std::size_t named_prefix(std::string_view line) {
  const std::size_t colon = line.substr(0, 24).find(": ");
  if (colon == std::string_view::npos || colon == 0 || !is_digit(line[colon - 1])) return 0;
  const std::string_view name = line.substr(0, colon);
  const bool number = std::all_of(name.begin(), name.end(), is_digit);
  const bool host = name.find('-') != std::string_view::npos && std::all_of(name.begin(), name.end(), is_word);
  return number || host ? colon + 1 : 0;
}

// "(WorkerDict pid=7, ip=10.0.0.1)": Ray.
std::size_t ray_prefix(std::string_view line) {
  if (!line.starts_with("(")) return 0;
  const std::size_t close = line.substr(0, 96).find(')');
  if (close == std::string_view::npos) return 0;
  return line.substr(0, close).find(" pid=") == std::string_view::npos ? 0 : close + 1;
}

}  // namespace

std::size_t prefix_bytes(std::string_view line) {
  std::size_t at = 0;
  while (at < line.size()) {
    const std::string_view rest = line.substr(at);
    std::size_t step = escape_bytes(rest);
    if (step == 0 && (rest[0] == '>' || rest[0] == '|')) step = 1;
    if (step == 0) step = noise_bytes(rest);
    if (step == 0) step = bracket_prefix(rest);
    if (step == 0) step = named_prefix(rest);
    if (step == 0) step = ray_prefix(rest);
    if (step == 0) break;
    at += step;
  }
  return at;
}

Squashed::Squashed(std::string_view original) : original_(original) {
  text_.reserve(original.size());
  origin_.reserve(original.size());
  for (std::size_t at = 0; at < original.size();) {
    const std::size_t end = std::min(original.find('\n', at), original.size());
    take_line(at, end);
    at = end + 1;
  }
}

void Squashed::take_line(std::size_t begin, std::size_t end) {
  const std::string_view line = original_.substr(begin, end - begin);
  for (std::size_t at = prefix_bytes(line); at < line.size();) {
    const std::string_view rest = line.substr(at);
    const std::size_t skip = std::max(escape_bytes(rest), noise_bytes(rest));
    if (skip != 0) {
      at += skip;
      continue;
    }
    const char c = rest[0];
    text_ += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    origin_.push_back(static_cast<std::uint32_t>(begin + at++));
  }
}

std::string Squashed::quote(std::size_t at, std::size_t limit) const {
  if (at >= origin_.size()) return {};
  const std::size_t place = origin_[at];
  const std::size_t before = original_.rfind('\n', place);
  std::size_t begin = before == std::string_view::npos ? 0 : before + 1;
  const std::size_t end = std::min(original_.find('\n', place), original_.size());
  begin = std::min(begin + prefix_bytes(original_.substr(begin, end - begin)), place);
  if (place - begin > limit / 2) {
    begin = place - limit / 4;
    while (begin < place && (static_cast<unsigned char>(original_[begin]) & 0xC0) == 0x80)
      ++begin;
  }
  std::string_view line = utf8_prefix(original_.substr(begin, end - begin), limit);
  while (!line.empty() && (line.back() == ' ' || line.back() == '\r' || line.back() == '\t'))
    line.remove_suffix(1);
  return std::string(line);
}

}  // namespace ledger::oom
