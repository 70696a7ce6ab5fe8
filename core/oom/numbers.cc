// numbers.cc - numbers with units. PyTorch prints two decimals and MiB or GiB; JAX prints "10.51G", Paddle
// "428.000000MB", Ray "60.19GB", the allocators of MLX and the CPU plain bytes. All of them mean powers of two.
#include <cmath>
#include <cstdlib>
#include <string>

#include "core/base/utf8.h"
#include "core/oom/messages.h"

namespace ledger::oom {
namespace {

struct Unit {
  std::string_view name;
  int shift;
};
// Longer names first: "gib" before "g".
constexpr Unit kUnits[] = {{"bytes", 0}, {"byte", 0}, {"kib", 10}, {"mib", 20}, {"gib", 30}, {"tib", 40}, {"kb", 10},
                           {"mb", 20},   {"gb", 30},  {"tb", 40},  {"k", 10},   {"m", 20},   {"g", 30},   {"b", 0}};

bool is_letter(char c) {
  return c >= 'a' && c <= 'z';
}

const Unit* unit_at(std::string_view text, std::size_t at) {
  for (const Unit& unit : kUnits) {
    if (text.substr(at).starts_with(unit.name)) return &unit;
  }
  return nullptr;
}

// "23.65" of at most 24 characters; more is no size.
std::optional<double> real(std::string_view digits) {
  if (digits.empty() || digits.size() > 24 || !is_digit(digits[0])) return std::nullopt;
  return std::strtod(std::string(digits).c_str(), nullptr);
}

std::optional<Bytes> scaled(double value, int shift) {
  constexpr double kMost = 9223372036854775808.0;  // 2^63
  const double bytes = value * static_cast<double>(Bytes{1} << shift);
  if (!(bytes >= 0 && bytes < kMost)) return std::nullopt;
  return static_cast<Bytes>(std::llround(bytes));
}

}  // namespace

std::optional<Number> number_at(std::string_view text, std::size_t begin, char default_unit) {
  std::size_t end = begin;
  bool dot = false;
  while (end < text.size() && (is_digit(text[end]) || (text[end] == '.' && !dot && end > begin))) {
    dot = dot || text[end] == '.';
    ++end;
  }
  const auto value = real(text.substr(begin, end - begin));
  if (!value) return std::nullopt;
  if (const Unit* unit = unit_at(text, end)) return Number{scaled(*value, unit->shift), begin, end + unit->name.size()};
  if (default_unit == '\0') return std::nullopt;
  return Number{scaled(*value, 0), begin, end};
}

std::optional<Number> number_before(std::string_view text, std::size_t end) {
  std::size_t unit = end;
  while (unit > 0 && end - unit < 5 && is_letter(text[unit - 1]))
    --unit;
  std::size_t begin = unit;
  while (begin > 0 && unit - begin < 24 && (is_digit(text[begin - 1]) || text[begin - 1] == '.'))
    --begin;
  while (begin < unit && !is_digit(text[begin]))
    ++begin;
  auto number = number_at(text, begin);
  // Doubled by interleaving ("79.1579.15"): the last two decimals end the number all the same.
  if (!number || number->end != end) return std::nullopt;
  return number;
}

}  // namespace ledger::oom
