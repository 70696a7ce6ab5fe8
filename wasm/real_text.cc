// core/base/real_text.h by the browser's numbers, and what nlohmann's reader calls of the C library. JavaScript rounds
// decimals correctly both ways, as the C library does, so that reports stay the same bytes; but halfway between two
// decimals (2^-24 to 16 digits) it takes the larger, the C library the even one. A tie is seen by its digits: a 5, and
// zeros after it.
#include "core/base/real_text.h"

#include <emscripten.h>

#include <cstdarg>
#include <cstring>

// clang-format off
EM_JS(double, ledger_read_digits, (const char* text), { return Number(UTF8ToString(text)) })
EM_JS(void, ledger_write_digits, (char* text, int size, int precision, double number), {
  const more = number.toExponential(Math.min(precision + 60, 100)).split("e");
  const kept = more[0].slice(0, precision + (number < 0 ? 3 : 2));
  const tie = /^50*$/.test(more[0].slice(kept.length));
  const even = "02468".includes(kept[kept.length - 1]);
  stringToUTF8(tie && even ? kept + "e" + more[1] : number.toExponential(precision), text, size)
})
// clang-format on

namespace ledger {

void write_digits(char (&text)[kRealDigits], int precision, double number) {
  ledger_write_digits(text, kRealDigits, precision, number);
}

double read_digits(const char* text) {
  return ledger_read_digits(text);
}

}  // namespace ledger

// Only ever called with a JSON number and nothing after it; the other two stand in the same object file of the C
// library, are named by nlohmann's reader, and never called.
extern "C" {

double strtod(const char* text, char** end) {
  if (end != nullptr) *end = const_cast<char*>(text) + std::strlen(text);
  return ledger::read_digits(text);
}

float strtof(const char* text, char** end) {
  return static_cast<float>(strtod(text, end));
}

long double strtold(const char* text, char** end) {
  return strtod(text, end);
}

// nlohmann's reader prints control characters of a bad token by this, and nothing else in the module prints.
int snprintf(char* text, size_t size, const char* format, ...) {
  constexpr char kHex[] = "0123456789ABCDEF";
  if (std::strcmp(format, "<U+%.4X>") != 0 || size < 9) __builtin_trap();
  va_list values;
  va_start(values, format);
  const int byte = va_arg(values, int);
  va_end(values);
  std::strcpy(text, "<U+0000>");
  text[5] = kHex[(byte >> 4) & 15];
  text[6] = kHex[byte & 15];
  return 8;
}

// Embind names types that nobody bound by it, in errors that cannot come here.
int siprintf(char* text, const char*, ...) {
  text[0] = '\0';
  return 0;
}

}  // extern "C"
